"""`python -m bench`: compare with a peer on this machine.

Exit codes: 0 when everything was measured, 1 when something stopped it, 2 for arguments that make no sense.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.batches import BATCH_SIZES
from bench.machine import num_cores
from bench.models import PRECISIONS, BenchError
from bench.translate import PARTS, Options, run
from model.checkpoint import CheckpointError

_QUICK = {"rounds": 1, "num_arrivals": 48}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the command line names; returns the exit code."""
    parser = _parser()
    flags = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request would cost what is measured
    try:
        results = run(_options(parser, flags)).to_dict()
        if flags.json:
            flags.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        if flags.plot:
            # Here, because a run without plots needs no plotting library.
            from bench.plots import plot  # noqa: PLC0415

            for path in plot(results, flags.plot):
                print(f"wrote {path}")
    except (BenchError, CheckpointError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _options(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> Options:
    if flags.threads < 1:
        parser.error(f"--threads is {flags.threads}, it must be at least 1")
    rounds = flags.rounds if flags.rounds is not None else _QUICK["rounds"] if flags.quick else Options.rounds
    if rounds < 1:
        parser.error(f"--rounds is {rounds}, it must be at least 1")
    return Options(
        checkpoint=None if flags.model == "random" else Path(flags.model),
        precisions=flags.precision or PRECISIONS,
        parts=flags.only or PARTS,
        batch_sizes=flags.batch or BATCH_SIZES,
        num_threads=flags.threads,
        rounds=rounds,
        num_arrivals=_QUICK["num_arrivals"] if flags.quick else Options.num_arrivals,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Compare Polyhead with a peer on this machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    translate = commands.add_parser(
        "translate",
        help="our engine beside CTranslate2",
        description="Translate with our engine and with CTranslate2: the same weights, sources, lengths and number of "
        "threads, in one run, round after round in turn. Each side uses its threads in the way that is fastest for the "
        "case. Before anything is timed, the outputs of both are compared token for token.",
        epilog="The first run with a model exports and converts it, which takes minutes; bench/.cache keeps both.",
    )
    translate.add_argument(
        "--model",
        default="random",
        metavar="random|CHECKPOINT",
        help="random weights (6+6 layers, width 512, vocabulary 16,000; 20 tokens in, 30 out), or the folder of a "
        "checkpoint, which translates real sentences (default: random)",
    )
    translate.add_argument(
        "--only", action="append", choices=PARTS, help="measure only this part, can be given several times"
    )
    translate.add_argument(
        "--precision", action="append", choices=PRECISIONS, help="only this precision, can be given several times"
    )
    translate.add_argument(
        "--batch",
        action="append",
        type=int,
        choices=BATCH_SIZES,
        help="only this batch size, can be given several times",
    )
    translate.add_argument(
        "--threads",
        type=int,
        default=num_cores(),
        metavar="N",
        help="threads on each side (default: the cores, %(default)s)",
    )
    translate.add_argument(
        "--rounds", type=int, metavar="N", help=f"rounds of each case (default: {Options.rounds}, with --quick 1)"
    )
    translate.add_argument("--quick", action="store_true", help="one round and few requests, to see that it works")
    translate.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    translate.add_argument(
        "--plot", type=Path, metavar="FOLDER", help="also draw charts into FOLDER (needs matplotlib)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
