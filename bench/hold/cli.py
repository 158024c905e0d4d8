"""The arguments of `python -m bench hold`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.hold.main import HoldOptions, run_hold


def add_hold(commands: Any) -> None:
    """Add the command to the benchmark's parser."""
    hold = commands.add_parser(
        "hold",
        help="attacks on our server: what everybody else waits meanwhile, and what memory it keeps",
        description="Start a server with the defaults, ask it for one thing of every kind, play every attack and a "
        "seeded fuzzer against it while a bystander asks for GET /languages, end it with SIGTERM in the middle of "
        "requests, and print a table, with that of `bench fairness`. Faults are 424 and 5xx answers but 503, 504 and "
        "507. Linux only.",
    )
    default = HoldOptions()
    hold.add_argument(
        "--requests",
        type=int,
        default=default.num_requests,
        metavar="N",
        help="requests in all; the fuzzer makes what the attacks leave (default: %(default)s)",
    )
    hold.add_argument(
        "--seed", type=int, default=default.seed, metavar="N", help="of the fuzzer (default: %(default)s)"
    )
    hold.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORDS",
        help='only attacks with these words in their names; "fuzz", "fairness"',
    )
    hold.add_argument(
        "--soak", type=float, default=0.0, metavar="SECONDS", help="go on with mixed traffic for so long afterwards"
    )
    hold.add_argument("--bundles", type=Path, default=default.bundles, metavar="FOLDER", help="what is served")
    hold.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    hold.set_defaults(run=run_flags, plot=None, threads=1, rounds=None)


def run_flags(flags: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line asks for."""
    return run_hold(
        HoldOptions(
            num_requests=flags.requests,
            seed=flags.seed,
            only=tuple(flags.only),
            soak_seconds=flags.soak,
            bundles=flags.bundles,
        )
    ).to_dict()
