"""`python -m model distill` and `filter`: what a translation model makes of training pairs.

Sequence-level distillation (Kim and Rush 2016, https://arxiv.org/abs/1606.07947): a small model learns from a larger
one's translations, which are more regular than people's. Dual conditional cross-entropy (Junczys-Dowmunt 2018,
https://arxiv.org/abs/1809.00197): a pair is doubtful where a model finds it unlikely, or likelier one way only.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from model.checkpoint import Checkpoint, CheckpointError, load_checkpoint
from model.clean import write_pairs
from model.data import DataError, read_pairs
from model.decoding import pad
from model.evaluation import translate_texts
from model.translation_format import format_of

Pair = tuple[str, str]


def distil(checkpoint: Checkpoint, pairs: Sequence[Pair], beam_size: int) -> dict[str, list[Pair]]:
    """The checkpoint's translation of each distinct source, by direction ("en-de"), in the order of the columns.

    Only the source side of these pairs is true: train on them with that `direction` alone. Empty answers are left out.
    """
    languages = _languages(checkpoint)
    result = {}
    for side in (0, 1):
        sources = list(dict.fromkeys(pair[side] for pair in pairs))
        targets = translate_texts(checkpoint, sources, (languages[side], languages[1 - side]), beam_size)
        made = [(source, target) for source, target in zip(sources, targets, strict=True) if target.strip()]
        name = f"{languages[side]}-{languages[1 - side]}"
        result[name] = [pair if side == 0 else pair[::-1] for pair in made]
    return result


def dual_cross_entropy(checkpoint: Checkpoint, pairs: Sequence[Pair]) -> list[float]:
    """How doubtful each pair is, in nats a token: |H1 - H2| + (H1 + H2) / 2, of both directions; 0 is beyond doubt."""
    there, back = (cross_entropy(checkpoint, pairs, is_back) for is_back in (False, True))
    return [abs(a - b) + (a + b) / 2 if a + b < math.inf else math.inf for a, b in zip(there, back, strict=True)]


@torch.inference_mode()
def cross_entropy(checkpoint: Checkpoint, pairs: Sequence[Pair], is_back: bool, max_rows: int = 64) -> list[float]:
    """Mean negative log-likelihood of a target's tokens, its end among them (nats); infinite beyond the positions."""
    model, config = checkpoint.model, checkpoint.config
    encoder, decoder = checkpoint.tokenizer, checkpoint.target_tokenizer or checkpoint.tokenizer
    languages = _languages(checkpoint)
    first, second = (1, 0) if is_back else (0, 1)
    bound = format_of(checkpoint.metadata).bind(languages[first], languages[second], encoder, decoder)
    sources = list(map(bound.source_ids, encoder.encode_batch([bound.text_prefix + pair[first] for pair in pairs])))
    targets = decoder.encode_batch([pair[second] for pair in pairs])
    begin = bound.target_ids
    lengths = [max(len(source), len(begin) + len(target)) for source, target in zip(sources, targets, strict=True)]
    order = sorted((i for i in range(len(pairs)) if lengths[i] <= config.max_seq_len), key=lengths.__getitem__)
    costs = [math.inf] * len(pairs)
    for start in range(0, len(order), max_rows):
        part = order[start : start + max_rows]
        source_rows = pad([sources[i] for i in part], config.pad_id)
        inputs = pad([[*begin, *targets[i]] for i in part], config.pad_id)
        labels = pad([[*[-100] * (len(begin) - 1), *targets[i], config.eos_id] for i in part], -100)
        states = model(inputs, source_rows, torch.tensor([len(sources[i]) for i in part]))
        logits = model.project(states).transpose(1, 2)  # (B,V,T)
        sums = torch.nn.functional.cross_entropy(logits, labels, reduction="none").sum(1)
        for i, total in zip(part, sums.tolist(), strict=True):
            costs[i] = total / (len(targets[i]) + 1)
    return costs


def keep_best(pairs: Sequence[Pair], doubts: Sequence[float], share: float) -> list[Pair]:
    """The `share` of the pairs with the least doubt, in their order."""
    order = sorted(range(len(pairs)), key=doubts.__getitem__)
    kept = set(order[: round(share * len(pairs))])
    return [pair for index, pair in enumerate(pairs) if index in kept]


def _languages(checkpoint: Checkpoint) -> list[str]:
    languages = checkpoint.metadata.get("languages", [])
    directions = checkpoint.metadata.get("directions", [])
    if len(languages) != 2 or [*languages] not in directions or [*reversed(languages)] not in directions:
        raise CheckpointError("the checkpoint does not translate two languages both ways")
    return [*languages]


def add_distill(commands: Any) -> None:
    """Add both commands to the parser of `python -m model`."""
    summary = "translate the sources of pairs, for a smaller model to learn from (sequence-level distillation)"
    command = commands.add_parser("distill", help=summary, description=summary[0].upper() + summary[1:] + ".")
    _add_files(command, "OUT.tsv", "gets the direction before its ending: OUT.en-de.tsv and OUT.de-en.tsv")
    command.add_argument("--beam-size", type=int, default=4, metavar="K", help="(default: %(default)s)")
    command.set_defaults(run=_distill)
    summary = "keep the pairs that a model doubts least (dual conditional cross-entropy)"
    command = commands.add_parser("filter", help=summary, description=summary[0].upper() + summary[1:] + ".")
    _add_files(command, "OUT.tsv", "gets the pairs kept")
    command.add_argument("--keep", type=float, default=0.9, metavar="S", help="a share (default: %(default)s)")
    command.set_defaults(run=_filter)


def _add_files(command: argparse.ArgumentParser, name: str, what: str) -> None:
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a translation model, both ways")
    command.add_argument("pairs", type=Path, metavar="PAIRS", help="tab-separated, in the checkpoint's languages")
    command.add_argument("out", type=Path, metavar=name, help=f"plain or .xz; {what}")


def _distill(args: argparse.Namespace) -> None:
    if args.beam_size < 1:
        raise DataError(f"--beam-size is {args.beam_size}, it must be at least 1")
    made = distil(load_checkpoint(args.checkpoint), read_pairs(args.pairs).pairs, args.beam_size)
    for direction, pairs in made.items():
        name, _, ending = args.out.name.partition(".")
        path = args.out.with_name(f"{name}.{direction}.{ending or 'tsv'}")
        write_pairs(path, pairs)
        print(f"wrote {path}: {len(pairs)} pairs")


def _filter(args: argparse.Namespace) -> None:
    if not 0.0 < args.keep <= 1.0:
        raise DataError(f"--keep is {args.keep}, allowed: above 0, at most 1")
    pairs = read_pairs(args.pairs).pairs
    kept = keep_best(pairs, dual_cross_entropy(load_checkpoint(args.checkpoint), pairs), args.keep)
    write_pairs(args.out, kept)
    print(f"wrote {args.out}: {len(kept)} of {len(pairs)} pairs")
