"""The command line of the exporter: `python -m export CHECKPOINT BUNDLE --precision fp32 --precision int8`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from export.bundle import BundleError
from export.comparison import ParityError
from export.convert import COMPUTE_DTYPES, ExportError, ExportOptions, export_bundle
from export.manifest import Manifest
from export.weights import WeightError
from model.checkpoint import CheckpointError, load_checkpoint
from model.tokenizer import TokenizerError

EXIT_REFUSED = 1
"""The checkpoint, the options or the result of the parity check are at fault. (Malformed arguments exit with 2.)"""

_REFUSALS = (
    BundleError,
    CheckpointError,
    ExportError,
    ParityError,
    TokenizerError,
    WeightError,
    OSError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        manifest = export_bundle(
            load_checkpoint(options.checkpoint),
            options.bundle,
            ExportOptions(
                precisions=tuple(dict.fromkeys(options.precision or ExportOptions.precisions)),
                name=options.name,
                num_candidates=options.num_candidates,
                attention=options.attention,
                calibration=options.calibration,
                force=options.force,
            ),
            report=lambda step: print(step, file=sys.stderr, flush=True),
        )
    except _REFUSALS as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_REFUSED
    print(_summary(options.bundle, manifest))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m export",
        description="Turn a checkpoint into an ONNX bundle that `python -m service` serves.",
        epilog="Every precision is compared with the PyTorch model before the bundle is written; "
        "one that differs too much is refused, and the exit code is 1.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="folder that `python -m model train` wrote")
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder to write, for instance bundles/en-de")
    parser.add_argument(
        "--precision",
        action="append",
        choices=tuple(COMPUTE_DTYPES),
        help="a precision to include, can be given several times; they share one weights file "
        f"(default: {' and '.join(ExportOptions.precisions)}; int4 is for decoders, fp16 for GPUs)",
    )
    parser.add_argument("--name", help="name of the bundle in the API and in metrics (default: the folder's name)")
    parser.add_argument(
        "--num-candidates",
        type=int,
        default=ExportOptions.num_candidates,
        metavar="N",
        help="best tokens that a step returns for each row; K beams need 2 K (default: %(default)s)",
    )
    parser.add_argument(
        "--attention",
        action="store_true",
        help="include the graph of attention maps, which POST /attention needs; it adds no weights",
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="texts (UTF-8, one a line) to measure an embedding model on for int8; some hundred like those that it "
        "will meet are plenty (default: texts of many kinds and languages that come with the exporter)",
    )
    parser.add_argument("--force", action="store_true", help="replace the bundle if there is one")
    return parser


def _summary(folder: Path, manifest: Manifest) -> str:
    size = sum(record.size for record in manifest.files.values())
    lines = [f"wrote {folder}: {manifest.name}, {len(manifest.files)} files, {size / 1e6:.1f} MB"]
    for precision, report in manifest.parity.items():
        if report.status == "passed":
            compared = (
                f"same token at {report.token_agreement:.1%} of positions"
                if report.smallest_cosine is None
                else f"smallest cosine of an embedding {report.smallest_cosine:.6f}"
            )
            lines.append(
                f"  {precision}: numbers differ by at most {report.largest_difference:.2g} "
                f"(relative error {report.relative_error:.2g}), {compared}"
            )
        else:
            lines.append(f"  {precision}: parity {report.status}, {report.note}")
    return "\n".join(lines)
