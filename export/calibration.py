"""The range of the inputs of each product, measured on text: that of a file, or what the model itself generates.

An int8 product needs a scale for its left side. A scale taken from the batch at hand would make a row's result depend
on its neighbours; one scale a row costs a third more per product on ONNX Runtime's kernels. A fixed scale, measured
beforehand, does neither: it is what small translation models are shipped with elsewhere too (Bogoychev et al. 2020,
https://aclanthology.org/2020.ngt-1.26). See docs/decisions/0011-int8-fixed-scales.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.tokenizer import Tokenizer
from model.transformer import Transformer

PROJECTION = "projection"
"""The name under which the input of the vocabulary projection is kept, tied or not."""

NUM_SEQUENCES = 32
NUM_TOKENS = 24
NUM_ROUNDS = 2
"""Random tokens are decoded, and what comes out is decoded again: the second round is closer to real text."""

MAX_DEVIATIONS = 3.0
"""A range ends so many standard deviations beyond the mean of the tokens' extremes: one outlier does not widen it."""


class Range(NamedTuple):
    """Lowest and highest value to represent; zero lies between them."""

    low: float
    high: float


class Channels(NamedTuple):
    """Lowest and highest value (K) of each channel that enters a product."""

    lows: NDArray[np.float32]
    highs: NDArray[np.float32]


TEXTS = Path(__file__).with_name("calibration.txt")
"""Texts of many kinds and languages, one a line: the default calibration texts of an encoder."""


def text_ids(tokenizer: Tokenizer, file: Path, limit: int) -> list[list[int]]:
    """The token ids of each line of `file` (UTF-8; a blank line is the empty text), with special tokens.

    Longer ones are cut to `limit`, and lines without any token left out; ValueError when nothing is left.
    """
    encodings = tokenizer.encodings(file.read_text(encoding="utf-8").split("\n"))
    rows = [encoding.ids[:limit] for encoding in encodings if encoding.ids]
    if not rows:
        raise ValueError(f"{file} holds no text to calibrate on; it needs one text a line")
    return rows


@torch.inference_mode()
def channel_ranges(model: Transformer, texts: Sequence[Sequence[int]]) -> dict[str, Channels]:
    """The channels of the input of every linear map of an encoder, by module name, over the token ids of `texts`."""
    with _recording(model, axis=0) as extremes:
        _encode_each(model, texts)
    return {
        name: Channels(
            torch.stack([lows for lows, _ in seen]).amin(0).numpy(),
            torch.stack([highs for _, highs in seen]).amax(0).numpy(),
        )
        for name, seen in extremes.items()
    }


@torch.inference_mode()
def activation_ranges(model: Transformer, sources: Sequence[Sequence[int]] = ()) -> dict[str, Range]:
    """The range of the input of every linear map of `model`, by module name, and of `PROJECTION`.

    `sources` are token ids to run through it; without any, the model is run on sequences that it makes up.
    """
    with _recording(model) as extremes:
        if model.config.architecture == "encoder":
            _encode_each(model, sources or _random_ids(model).tolist())
        elif sources:
            _decode(model, *_padded(model, sources))
        else:
            ids = _random_ids(model)
            for _ in range(NUM_ROUNDS):
                ids = _decode(model, ids % model.config.num_source_tokens, torch.full((len(ids),), ids.shape[1]))
    return {name: _range(*(torch.cat(parts) for parts in zip(*seen, strict=True))) for name, seen in extremes.items()}


def _random_ids(model: Transformer) -> Tensor:
    length = min(NUM_TOKENS, model.config.max_seq_len)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, model.config.vocab_size, (NUM_SEQUENCES, length), generator=generator)


def _encode_each(model: Transformer, sources: Sequence[Sequence[int]]) -> None:
    """Encode every text by itself: padding, which nothing reads, must not widen a range."""
    for source in sources:
        ids = torch.tensor([source[: model.config.max_seq_len]])
        model.encode(ids, torch.tensor([ids.shape[1]]))


def _padded(model: Transformer, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    rows = [list(source[: model.config.max_seq_len]) for source in sources]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [model.config.pad_id] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([len(row) for row in rows])


@contextmanager
def _recording(model: Transformer, axis: int = -1) -> Iterator[dict[str, list[tuple[Tensor, Tensor]]]]:
    """Collect the extremes (N) of each token that enters a linear map, or with `axis` 0 (K) of each channel."""
    extremes: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def record(name: str, states: Tensor) -> None:
        tokens = states.flatten(0, -2)
        extremes.setdefault(name, []).append((tokens.amin(axis), tokens.amax(axis)))

    handles = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: record(name, inputs[0]))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name != PROJECTION
    ]
    # The tied projection is no module, so its input is taken where it leaves the stack.
    if model.config.num_decoder_layers:
        handles.append(model.decoder_norm.register_forward_hook(lambda _, __, output: record(PROJECTION, output)))
    try:
        yield extremes
    finally:
        for handle in handles:
            handle.remove()


def _decode(model: Transformer, ids: Tensor, lengths: Tensor) -> Tensor:
    """Decode greedily for as many steps as `ids` (B,S) is wide, past any end token: (B,S) token ids."""
    num_rows, num_steps = ids.shape
    cross_cache = source_lengths = None
    if model.config.architecture == "encoder_decoder":
        cross_cache, source_lengths = model.cross_cache(model.encode(ids, lengths)), lengths
        tokens = torch.full((num_rows, 1), model.config.bos_id)
    else:
        tokens = ids[:, :1]
    cache, decoded = model.empty_cache(num_rows, num_steps), []
    for step in range(num_steps):
        states, cache = model.decode(tokens, torch.full((num_rows,), step), cache, cross_cache, source_lengths)
        tokens = model.project(states).argmax(-1)
        decoded.append(tokens)
    return torch.cat(decoded, dim=1)


def _range(lows: Tensor, highs: Tensor) -> Range:
    """Mean plus or minus `MAX_DEVIATIONS`, within what was seen, rounded up so that the last bits do not show."""
    low = max(float(lows.mean() - MAX_DEVIATIONS * lows.std(correction=0)), float(lows.min()))
    high = min(float(highs.mean() + MAX_DEVIATIONS * highs.std(correction=0)), float(highs.max()))
    return Range(-round_up(max(-low, 0.0)), round_up(max(high, 0.0)))


def round_up(value: float) -> float:
    """Up to three significant digits: sums differ in their last bits from machine to machine, the bundle should not."""
    if value == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit
