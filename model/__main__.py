"""`python -m model`: train, evaluate and import checkpoints, and prepare data for them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

# OpenMP reads these as torch loads it. Threads that spin while they wait take the cores from other programs, and from
# training itself beside them: 128 steps instead of 22 in half a minute on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

# isort: split
import torch
from rich.console import Console

from model.align import add_align
from model.blend import add_blend
from model.checkpoint import CheckpointError, load_checkpoint
from model.clean import add_clean
from model.config import ConfigError
from model.data import DataError
from model.distill import add_distill
from model.importing.cli import add_import
from model.score_alignment import add_evaluate_alignment
from model.score_files import SearchOptions, score_files
from model.tokenizer import TokenizerError
from model.training.config import load_training_config
from model.training.reports import Progress
from model.training.run import train
from model.training.signals import Stopped
from model.training.trainer import TrainingError
from model.write_numbers import add_number_sentences

_EXAMPLES = """examples, of which the first two need no data and two minutes:
  python -m model number-sentences data
  python -m model train model/configs/example.toml --data data
  python -m model evaluate runs/example/final data/numbers-test.tsv --beam-size 4 --json scores.json

exit status: 0 done, 1 training failed, 2 bad input, 128 + N stopped by signal N with the run saved
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m model",
        description="Train, evaluate and import transformers, and prepare data for them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_train(commands)
    _add_evaluate(commands)
    add_evaluate_alignment(commands, _device)
    add_import(commands)
    add_blend(commands)
    add_clean(commands)
    add_number_sentences(commands)
    add_align(commands)
    add_distill(commands)
    return parser


def _add_train(commands: Any) -> None:
    summary = "train from a TOML configuration; started again, it goes on from its last save"
    command = commands.add_parser("train", help=summary, description=summary[0].upper() + summary[1:] + ".")
    command.add_argument("config", type=Path, metavar="CONFIG.toml", help="see model/configs/")
    command.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        default=Path(os.environ.get("POLYHEAD_DATA", "data")),
        help="where the configuration's paths start (default: $POLYHEAD_DATA, or data)",
    )
    command.add_argument("--out", type=Path, metavar="FOLDER", help="the run's folder (default: runs/NAME)")
    command.add_argument(
        "--init",
        type=Path,
        metavar="CHECKPOINT",
        help="the checkpoint that a new run starts from (default: the configuration's init.checkpoint, if it has one)",
    )
    _add_device(command)
    command.add_argument("--threads", type=_positive, metavar="N", help="processor threads (default: all cores)")
    command.set_defaults(run=_train)


def _add_evaluate(commands: Any) -> None:
    summary = "score a checkpoint on files, by the measures of its task"
    described = (
        "Score a checkpoint on whole files, by the measures of its task. Scores while training differ: they are of the "
        "first or evenly spread max_pairs of each set, and translations are searched greedily."
    )
    command = commands.add_parser("evaluate", help=summary, description=described)
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="its folder, such as runs/NAME/final")
    command.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="plain, .xz or .gz. For translate: pairs, scored by BLEU, chrF and numbers kept in every direction. For "
        "embed: pairs, scored by retrieval accuracy both ways, or lines of score, sentence, sentence, scored by "
        "Spearman's rho. For generate: running text, scored by perplexity",
    )
    command.add_argument(
        "--beam-size", type=_positive, default=1, metavar="K", help="of translate; 1 is greedy (default: %(default)s)"
    )
    command.add_argument(
        "--length-penalty",
        type=float,
        default=1.0,
        metavar="P",
        help="of translate; a hypothesis' log-probability is divided by its length to the power of P "
        "(default: %(default)s)",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the scores to FILE too")
    command.add_argument("--show", type=int, default=0, metavar="N", help="print the first N translations of each set")
    _add_device(command)
    command.set_defaults(run=_evaluate)


def _add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto is cuda where there is one (default: %(default)s)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device is cuda, but PyTorch sees no CUDA device here: use cpu or auto")
    return torch.device(name)


def _train(args: argparse.Namespace) -> None:
    if args.threads:
        torch.set_num_threads(args.threads)
    config = load_training_config(args.config)
    if args.init:
        if config.init is None:
            raise ConfigError(f"--init is given, but {args.config} has no [init]: it says what is taken over")
        config = dataclasses.replace(config, init=dataclasses.replace(config.init, checkpoint=str(args.init)))
    if not args.data.is_dir():
        raise DataError(f"there is no data folder {args.data}: name it with --data or POLYHEAD_DATA")
    with Progress() as progress:
        final = train(config, args.out or Path("runs") / config.name, args.data, _device(args.device), progress)
        progress.note(f"the trained model is in {final}")


def _evaluate(args: argparse.Namespace) -> None:
    checkpoint = load_checkpoint(args.checkpoint, _device(args.device))
    console = Console(highlight=False, markup=False, soft_wrap=True)
    report = score_files(checkpoint, args.files, SearchOptions(args.beam_size, args.length_penalty, args.show), console)
    if args.json:
        report = {"checkpoint": str(args.checkpoint), **report}
        args.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    args = _parser().parse_args(argv)
    try:
        args.run(args)
    except (CheckpointError, ConfigError, DataError, TokenizerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Stopped as stop:
        print(f"{stop}; the same command goes on from there", file=sys.stderr)
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        print("stopped before the first step", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
