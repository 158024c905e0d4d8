"""From a checkpoint to a bundle: what is refused, and the bundle that is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from export.description import Content, ExportError, describe
from export.group_query import GROUP_QUERY_PRECISIONS, group_query_problems
from export.manifest import MANIFEST_NAME, Manifest
from export.writing import COMPUTE_DTYPES, Plan, write_bundle
from model.checkpoint import Checkpoint
from model.config import ModelConfig


@dataclass(frozen=True)
class ExportOptions:
    """What to make of a checkpoint. `name` is the bundle's name, by default that of its folder."""

    precisions: Sequence[str] = ("fp32", "int8")
    name: str | None = None
    num_candidates: int = 16
    calibration: Path | None = None
    """Texts, one a line, to measure an encoder on for int8; by default those of this package."""
    attention: bool = False
    """Include the graph of attention maps."""
    group_query: bool = False
    """Write the self-attention of half-precision decoders as one operator of ONNX Runtime."""
    force: bool = False


def export_bundle(
    checkpoint: Checkpoint, folder: Path, options: ExportOptions, report: Callable[[str], None] = lambda _: None
) -> Manifest:
    """Write `checkpoint` as a bundle into `folder` and return its manifest; `report` is told of each step.

    The bundle is made beside its place and moved there once it has passed its parity check. Raises ExportError for
    options that cannot be, ParityError for a precision that differs too much.
    """
    content = _refuse(checkpoint, folder, options)
    plan = Plan(
        name=options.name or folder.resolve().name,
        precisions=options.precisions,
        attention=options.attention,
        calibration=options.calibration,
        group_query=options.group_query,
    )
    return write_bundle(content, folder, plan, report)


def _refuse_group_query(config: ModelConfig, precisions: Sequence[str]) -> None:
    problems = group_query_problems(config)
    if not set(precisions) & set(GROUP_QUERY_PRECISIONS):
        allowed = " and ".join(GROUP_QUERY_PRECISIONS)
        problems.append(f"it is for {allowed}, and the precisions are {', '.join(precisions)}")
    if problems:
        raise ExportError(f"GroupQueryAttention cannot be written: {'; '.join(problems)}")


def _refuse(checkpoint: Checkpoint, folder: Path, options: ExportOptions) -> Content:
    """The contents of the manifest, or ExportError."""
    config = checkpoint.config
    unknown = [name for name in options.precisions if name not in COMPUTE_DTYPES]
    if unknown or not options.precisions:
        raise ExportError(f"precision {', '.join(unknown) or 'missing'}: allowed are {', '.join(COMPUTE_DTYPES)}")
    if "int4" in options.precisions and config.architecture == "encoder":
        allowed = ", ".join(name for name in COMPUTE_DTYPES if name != "int4")
        raise ExportError(
            "precision int4 is for decoders, whose steps wait for weights; an encoder reads many rows at a time, where "
            f"int8 is faster and nearer: allowed are {allowed}"
        )
    if not 1 <= options.num_candidates <= config.vocab_size:
        raise ExportError(
            f"{options.num_candidates} candidates a step cannot be chosen, "
            f"allowed: 1 to {config.vocab_size}, the size of the vocabulary"
        )
    if options.group_query:
        _refuse_group_query(config, options.precisions)
    content = describe(checkpoint, options.num_candidates)
    if options.calibration is not None and content.heads.embed is None:
        raise ExportError(
            f"calibration texts are for encoders; a model of architecture {config.architecture!r} is "
            "measured on what it writes itself"
        )
    if not folder.exists():
        return content
    if not options.force:
        raise ExportError(f"{folder} exists already; give another folder, or --force to replace it")
    if not (folder / MANIFEST_NAME).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} is not a bundle, so --force does not replace it; remove it or give another folder")
    return content
