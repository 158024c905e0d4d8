"""Parity of an encoder: one vector a token and one a text, in ragged batches, beside those of the PyTorch model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from export.comparison import TOLERANCES, Differences, ParityError, check_values, interface_problems, rounded
from export.graphs import graph_definitions
from export.manifest import ParityReport, PrecisionSpec
from export.session import Array, GraphSession
from model.pooling import Pooling
from model.transformer import Transformer

LENGTHS = ((1,), (7, 2, 30), (5, 64, 17, 1), (128, 40))
"""The ragged batches: the number of tokens of each row, cut to what the model takes."""


def check_encoder_parity(
    model: Transformer, folder: Path, name: str, precision: PrecisionSpec, pooling: Pooling
) -> ParityReport:
    """Compare the encoder of one precision in `folder` with `model` (float32).

    Raises ParityError with everything that is out of tolerance.
    """
    spec = precision.graphs["encoder"]
    session = GraphSession(folder / spec.file, spec)
    if problems := interface_problems("encoder", session):
        raise ParityError(f"precision {name}: {'; '.join(problems)}")
    (definition,) = graph_definitions(model, "float32", pooling)
    seen, tolerance, cosines = Differences(), TOLERANCES[name], list[float]()
    for inputs in _batches(model):
        with torch.inference_mode():
            tokens, texts = definition.module.eval()(*(torch.from_numpy(array) for array in inputs.values()))
        found = session.run(inputs)
        for row, length in enumerate(inputs["lengths"]):
            seen.add(tokens[row, :length].numpy(), found["token_embeddings"][row, :length])
        seen.add(texts.numpy(), found["embeddings"])
        cosines += _cosines(texts.numpy(), found["embeddings"]).tolist()
    check_values(seen, tolerance)
    if seen.problems:
        raise ParityError(f"precision {name} differs too much from the PyTorch model: {'; '.join(seen.problems)}")
    return ParityReport(
        status="passed",
        largest_difference=rounded(seen.largest),
        relative_error=rounded(seen.error),
        relative_error_tolerance=tolerance.error,
        smallest_cosine=round(min(cosines), 6),
        mean_cosine=round(float(np.mean(cosines)), 6),
        num_positions=seen.positions,
        num_sentences=len(cosines),
    )


def _batches(model: Transformer) -> Iterator[dict[str, Array]]:
    """Random tokens, padded on the right; the second half of a row is a second text where the model tells two apart."""
    config, random = model.config, np.random.default_rng(0)
    for lengths in LENGTHS:
        real = np.minimum(lengths, config.max_seq_len)
        positions = np.arange(real.max())
        ids = random.integers(0, config.vocab_size, (len(real), len(positions)))
        ids[positions >= real[:, None]] = config.pad_id
        batch: dict[str, Array] = {"input_ids": ids, "lengths": real}
        if config.num_token_types > 1:
            batch["token_type_ids"] = (positions >= real[:, None] // 2).astype(np.int64)
        yield batch


def _cosines(left: Array, right: Array) -> Array:
    product = (left.astype(np.float64) * right).sum(-1)
    cosines: Array = product / (np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1))
    return cosines
