"""`python -m model`: train and evaluate."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from model.checkpoint import CheckpointError, load_checkpoint
from model.config import ConfigError
from model.data import DataError, read_pairs
from model.evaluation import score, translate_texts
from model.tokenizer import TokenizerError
from model.training.config import load_training_config
from model.training.reports import Progress
from model.training.run import train


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m model", description="Train and evaluate transformers.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("train", help="train from a TOML configuration; started again, it resumes")
    command.add_argument("config", type=Path, metavar="CONFIG.toml")
    command.add_argument("--data", type=Path, default=_default_data(), help="folder that the configuration's paths start from")
    command.add_argument("--out", type=Path, help="folder of the run (default: runs/NAME)")
    command.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    command.add_argument("--threads", type=int, help="processor threads (default: all cores)")
    command.set_defaults(run=_train)
    command = commands.add_parser("evaluate", help="BLEU and chrF on files of sentence pairs, in every direction")
    command.add_argument("checkpoint", type=Path)
    command.add_argument("pairs", type=Path, nargs="+", metavar="PAIRS.tsv")
    command.add_argument("--beam-size", type=int, default=1, help="1 is greedy (default: %(default)s)")
    command.add_argument("--length-penalty", type=float, default=1.0, help="exponent of the length (default: %(default)s)")
    command.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    command.add_argument("--show", type=int, default=0, metavar="N", help="print the first N translations of each set")
    command.set_defaults(run=_evaluate)
    return parser


def _default_data() -> Path:
    return Path(os.environ.get("POLYHEAD_DATA", "data"))


def _device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device is cuda, but PyTorch sees no CUDA device here: use cpu or auto")
    if name not in ("cpu", "cuda"):
        raise ConfigError(f"--device is {name!r}, allowed: auto, cpu, cuda")
    return name


def _train(args: argparse.Namespace) -> None:
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    config = load_training_config(args.config)
    with Progress() as progress:
        final = train(config, args.out or Path("runs") / config.name, args.data, _device(args.device), progress)
        progress.note(f"the trained model is in {final}")


def _evaluate(args: argparse.Namespace) -> None:
    checkpoint = load_checkpoint(args.checkpoint, _device(args.device))
    languages = checkpoint.metadata["languages"]
    console = Console(highlight=False)
    console.print(f"{'set':<24}{'direction':<12}{'BLEU':>8}{'chrF':>8}{'pairs':>8}")
    signature = ""
    for path in args.pairs:
        pairs = read_pairs(path).pairs
        for source, target in checkpoint.metadata["directions"]:
            column = languages.index(source)
            texts = [pair[column] for pair in pairs]
            hypotheses = translate_texts(checkpoint, texts, target, args.beam_size, args.length_penalty)
            result = score(hypotheses, [pair[1 - column] for pair in pairs])
            signature = result.signature
            name = path.name.split(".")[0]
            console.print(f"{name:<24}{source + '-' + target:<12}{result.bleu:>8.2f}{result.chrf:>8.2f}{len(pairs):>8}")
            for text, hypothesis in list(zip(texts, hypotheses, strict=True))[: args.show]:
                console.print(f"  {text}\n  -> {hypothesis}", markup=False)
    console.print(f"beam {args.beam_size}, length penalty {args.length_penalty}, sacrebleu {signature}")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        args.run(args)
    except (CheckpointError, ConfigError, DataError, TokenizerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command takes it up again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
