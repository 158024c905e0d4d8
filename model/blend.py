"""`python -m model blend`: one model between two, where the second learned on from the first.

Wortsman et al. 2022, "Robust fine-tuning of zero-shot models" (https://arxiv.org/abs/2109.01903): on the straight line
between two such models lies one that keeps most of what the first knew and has most of what the second learned.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from model.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from model.transformer import Transformer


def blend(first: Checkpoint, second: Checkpoint, share: float) -> Checkpoint:
    """Weights (1 - share) * first + share * second, with everything else of the second.

    CheckpointError where the two are not the same model with the same vocabulary, or `share` is not between 0 and 1.
    """
    if not 0.0 <= share <= 1.0:
        raise CheckpointError(f"the share of the second checkpoint is {share}, allowed: 0 to 1")
    here, there = first.config.to_dict(), second.config.to_dict()
    problems = [
        f"{name} is {here[name]!r} and {there[name]!r}"
        for name in here
        if name != "dropout" and here[name] != there[name]
    ]
    if first.tokenizer.to_json() != second.tokenizer.to_json():
        problems.append("their tokenizers differ")
    if problems:
        raise CheckpointError(f"the two checkpoints cannot be blended: {'; '.join(problems)}")
    model = Transformer(second.config).eval()
    weights = first.model.state_dict()
    model.load_state_dict(
        {name: weights[name].lerp(tensor, share) for name, tensor in second.model.state_dict().items()}
    )
    # Scores and the choice of an alignment were measured on the second's own weights.
    training = {key: value for key, value in second.metadata.get("training", {}).items() if key != "scores"}
    origin = {"name": first.metadata.get("name"), "share": 1.0 - share}
    metadata = {**second.metadata, "training": {**training, "blended_with": origin}}
    metadata.pop("alignment", None)
    return dataclasses.replace(second, model=model, metadata=metadata)


def add_blend(commands: Any) -> None:
    """Add the command to the parser of `python -m model`."""
    summary = "write the model between two checkpoints, of which the second learned on from the first"
    command = commands.add_parser("blend", help=summary, description=summary[0].upper() + summary[1:] + ".")
    command.add_argument("first", type=Path, metavar="FIRST", help="what the second started from")
    command.add_argument("second", type=Path, metavar="SECOND", help="gives all that is not weights, too")
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the folder to write")
    command.add_argument(
        "--share",
        type=float,
        default=0.5,
        metavar="S",
        help="of the second's weights; the first has the rest (default: %(default)s)",
    )
    command.set_defaults(run=_blend)


def _blend(args: argparse.Namespace) -> None:
    if args.checkpoint.exists():
        raise CheckpointError(f"{args.checkpoint} exists already; give another folder")
    save_checkpoint(blend(load_checkpoint(args.first), load_checkpoint(args.second), args.share), args.checkpoint)
    print(f"wrote {args.checkpoint}: {1 - args.share:g} of {args.first} and {args.share:g} of {args.second}")
