"""The arguments of `python -m bench gpu`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.gpu.device import PRECISIONS
from bench.gpu.main import GpuOptions, run_gpu
from bench.gpu.tables import PARTS


def add_gpu(commands: Any) -> None:
    """Add the command to the benchmark's parser."""
    gpu = commands.add_parser(
        "gpu",
        help="parity, placement and speed on an NVIDIA GPU, beside PyTorch eager and compiled",
        description="On an NVIDIA GPU: compare every graph of the shipped bundles with the processor, say where each "
        "node runs, and time translation, embedding and generation beside PyTorch eager and torch.compile with a "
        "static cache, with the same random weights and lengths. Lines are printed as they come, JSON is written after "
        "each part, and all tables are printed once more at the end.",
        epilog="The first run makes and exports the models, which takes minutes (--prepare does only that, and needs "
        "no GPU); bench/.cache keeps them. What --minutes has no room for is named.",
    )
    gpu.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the script with tiny models in seconds"
    )
    gpu.add_argument(
        "--only", action="append", choices=PARTS, help="measure only this part, can be given several times"
    )
    gpu.add_argument("--model", action="append", default=[], metavar="NAME", help="only this shape, likewise")
    gpu.add_argument("--precision", action="append", choices=PRECISIONS, help="only this precision, likewise")
    gpu.add_argument(
        "--bundles", type=Path, default=Path("bundles"), metavar="FOLDER", help="what parity and placement look at"
    )
    gpu.add_argument(
        "--minutes",
        type=float,
        default=8.0,
        metavar="N",
        help="for all parts, after preparation (default: %(default)s)",
    )
    gpu.add_argument("--rounds", type=int, default=7, metavar="N", help="rounds of each case (default: %(default)s)")
    gpu.add_argument("--no-cuda-graphs", action="store_true", help="run our steps operator by operator, to compare")
    gpu.add_argument(
        "--group-query", action="store_true", help="write our fp16 decoders with GroupQueryAttention, to compare"
    )
    gpu.add_argument("--cache", type=Path, metavar="FOLDER", help="where models are kept (default: bench/.cache)")
    gpu.add_argument("--prepare", action="store_true", help="make the models and end")
    gpu.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    gpu.set_defaults(run=run_flags, plot=None, threads=1)


def run_flags(flags: argparse.Namespace) -> Mapping[str, Any]:
    """Run what the command line asks for."""
    return run_gpu(
        GpuOptions(
            device=flags.device,
            parts=flags.only or PARTS,
            models=flags.model,
            precisions=flags.precision or PRECISIONS,
            bundles=flags.bundles,
            minutes=flags.minutes,
            rounds=flags.rounds,
            cuda_graphs=not flags.no_cuda_graphs,
            group_query=flags.group_query,
            json=flags.json,
            cache=flags.cache or GpuOptions.cache,
            prepares_only=flags.prepare,
        )
    )
