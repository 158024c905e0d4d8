"""The command line of the exporter: `python -m export CHECKPOINT BUNDLE`, and `python -m export upgrade BUNDLE`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from export.bundle import BundleError
from export.comparison import ParityError
from export.convert import ExportOptions, export_bundle
from export.description import ExportError
from export.manifest import Manifest
from export.upgrade import UpgradeError, upgrade_bundle
from export.weights import WeightError
from export.writing import COMPUTE_DTYPES
from model.checkpoint import CheckpointError, load_checkpoint
from model.tokenizer import TokenizerError

EXIT_REFUSED = 1
"""The checkpoint, the options or the result of the parity check are at fault. (Malformed arguments exit with 2.)"""

UPGRADE = "upgrade"

_CALIBRATION_HELP = (
    "texts (UTF-8, one a line) to measure an embedding model on for int8; some hundred like those that it will meet "
    "are plenty (default: texts of many kinds and languages that come with the exporter)"
)

_REFUSALS = (
    BundleError,
    CheckpointError,
    ExportError,
    ParityError,
    TokenizerError,
    UpgradeError,
    WeightError,
    OSError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments and arguments[0] == UPGRADE:
            _upgrade(arguments[1:])
        else:
            _export(arguments)
    except _REFUSALS as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_REFUSED
    return 0


def _export(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    manifest = export_bundle(
        load_checkpoint(options.checkpoint),
        options.bundle,
        ExportOptions(
            precisions=tuple(dict.fromkeys(options.precision or ExportOptions.precisions)),
            name=options.name,
            num_candidates=options.num_candidates,
            attention=options.attention,
            group_query=options.group_query,
            calibration=options.calibration,
            force=options.force,
        ),
        report=_report,
    )
    print(_summary(options.bundle, manifest))


def _upgrade(arguments: Sequence[str]) -> None:
    options = _upgrade_parser().parse_args(arguments)
    for bundle in options.bundles:
        print(_summary(bundle, upgrade_bundle(bundle, options.calibration, _report)))


def _report(step: str) -> None:
    print(step, file=sys.stderr, flush=True)


def _upgrade_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m export {UPGRADE}",
        description="Write the graphs and the manifest of a bundle again, from its own weights and configuration.",
        epilog="The model that is made of the weights is compared with the bundle's graphs before, and the new graphs "
        "with the model; where they differ too much the bundle stays as it is, and the exit code is 1.",
    )
    parser.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE", help="folder of a bundle of format 2 or 3")
    parser.add_argument("--calibration", type=Path, metavar="FILE", help=_CALIBRATION_HELP)
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m export",
        description="Turn a checkpoint into an ONNX bundle that `python -m service` serves.",
        epilog="Every precision is compared with the PyTorch model before the bundle is written; "
        "one that differs too much is refused, and the exit code is 1. "
        f"`python -m export {UPGRADE} BUNDLE` writes the graphs of a bundle again.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="folder that `python -m model train` wrote")
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder to write, for instance bundles/en-de")
    parser.add_argument(
        "--precision",
        action="append",
        choices=tuple(COMPUTE_DTYPES),
        help="a precision to include, can be given several times; they share one weights file "
        f"(default: {' and '.join(ExportOptions.precisions)}; int4 is for decoders, fp16 and bf16 for GPUs)",
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
        help=_CALIBRATION_HELP,
    )
    parser.add_argument(
        "--group-query",
        action="store_true",
        help="write decoders in fp16 and bf16 with ONNX Runtime's GroupQueryAttention instead of ONNX's Attention and "
        "TensorScatter; which is faster on a GPU is not known yet",
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
