"""`python -m model clean`: the training pairs of a configuration without those that cleaning rejects."""

from __future__ import annotations

import argparse
import lzma
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from model.config import ConfigError
from model.corpus.cleaning import Cleaner
from model.data import DataError
from model.training.config import TrainingConfig, load_training_config
from model.training.data import read_pair_source


def clean(config: TrainingConfig, root: Path, folder: Path, report: Callable[[str], None]) -> None:
    """Write the cleaned training files under the same paths in `folder`, and the development files as they are.

    A pair that stands in several files stays in the first. ConfigError where the objective does not read pairs.
    """
    if config.objective.kind not in ("translation", "contrastive"):
        raise ConfigError(f"objective {config.objective.kind!r} reads running text; pairs can be cleaned")
    first, second = config.data.languages
    cleaner = Cleaner((first, second))
    for source in config.data.train:
        if source.min_score is not None:
            _copy(root / source.path, folder / source.path)
            continue
        file = read_pair_source(source, root, config.data.languages, report)
        kept, left_out = cleaner.clean(file.pairs)
        told = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        report(f"{source.path}: {len(kept)} kept{f'; left out: {told}' if told else ''}")
        write_pairs(folder / source.path, kept)
    for dev in config.data.dev:
        _copy(root / dev.path, folder / dev.path)


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Write pairs with a tab between them, one a line, compressed where the name ends in .xz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{first}\t{second}\n" for first, second in pairs)
    if path.suffix == ".xz":
        with lzma.open(path, "wt", encoding="utf-8", newline="\n", preset=1) as file:
            file.writelines(lines)
    elif path.suffix == ".gz":
        raise DataError(f"{path}: pairs are written plain or as .xz")
    else:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)


def _copy(path: Path, to: Path) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
    except FileNotFoundError as error:
        raise DataError(f"there is no data file {path}") from error


def add_clean(commands: Any) -> None:
    """Add the command to the parser of `python -m model`."""
    summary = "leave out training pairs that are no translations of each other, or that come twice"
    command = commands.add_parser("clean", help=summary, description=summary[0].upper() + summary[1:] + ".")
    command.add_argument("config", type=Path, metavar="CONFIG.toml", help="names the files, and their languages")
    command.add_argument("--data", type=Path, metavar="FOLDER", required=True, help="where its paths start")
    command.add_argument("--out", type=Path, metavar="FOLDER", required=True, help="gets the same paths, cleaned")
    command.set_defaults(run=_clean)


def _clean(args: argparse.Namespace) -> None:
    if args.out.resolve() == args.data.resolve():
        raise DataError(f"--out is the data folder {args.data} itself; give another")
    clean(load_training_config(args.config), args.data, args.out, lambda text: print(text, file=sys.stderr))
