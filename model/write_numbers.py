"""`python -m model number-sentences`: pairs to learn from in two minutes, and a test of numbers and dates."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from model.clean import write_pairs
from model.corpus.number_sentences import sentences, test_sentences
from model.data import DataError


def write_number_sentences(folder: Path, num_train: int, num_test: int, seed: int) -> list[Path]:
    """Write `numbers-train.tsv` and `numbers-test.tsv`, English and German, of sentences that share no template.

    DataError where one of them is there already.
    """
    paths = [folder / "numbers-train.tsv", folder / "numbers-test.tsv"]
    for path in paths:
        if path.exists():
            raise DataError(f"{path} exists already; give another folder")
    # Values are drawn from different seeds, too.
    write_pairs(paths[0], sentences(num_train, np.random.default_rng((seed, 1))))
    write_pairs(paths[1], test_sentences(num_test, seed))
    return paths


def add_number_sentences(commands: Any) -> None:
    """Add the command to the parser of `python -m model`."""
    summary = "write English-German pairs full of numbers, dates, times and units, to train on and to test with"
    command = commands.add_parser("number-sentences", help=summary, description=summary[0].upper() + summary[1:] + ".")
    command.add_argument("folder", type=Path, metavar="FOLDER", help="gets numbers-train.tsv and numbers-test.tsv")
    command.add_argument(
        "--train", type=int, default=20_000, metavar="N", help="pairs to train on (default: %(default)s)"
    )
    command.add_argument("--test", type=int, default=500, metavar="N", help="pairs to test with (default: %(default)s)")
    command.add_argument("--seed", type=int, default=1, metavar="N", help="(default: %(default)s)")
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    if min(args.train, args.test, args.seed) < 0:
        raise DataError(f"--train {args.train}, --test {args.test}, --seed {args.seed}: none can be below 0")
    for path in write_number_sentences(args.folder, args.train, args.test, args.seed):
        print(f"wrote {path}")
