"""The export as one sequence: refuse to overwrite, trace, set the precision, write, check, describe."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
from pydantic import BaseModel, ValidationError

from export.attention import attention_definition, fold_transposes
from export.bundle import file_record, load_bundle
from export.calibration import TEXTS, Range, activation_ranges, channel_ranges, text_ids
from export.comparison import ParityError
from export.equalize import equalize
from export.flatten import flatten_products
from export.graphs import TORCH_DTYPES, graph_definitions
from export.manifest import (
    ARCHITECTURES,
    MANIFEST_NAME,
    Alignment,
    DecodingDefaults,
    DType,
    Embedding,
    Generation,
    GraphSpec,
    Limits,
    Manifest,
    ParityReport,
    PrecisionSpec,
)
from export.parity import check_parity
from export.parity_encoder import check_encoder_parity
from export.projections import fold_scales, part_projections
from export.quantize import quantize
from export.quantize_blocks import quantize_blocks
from export.trace import trace
from export.weights import WEIGHTS_NAME, Array, StoredWeights, WeightFile, bind_weights
from model.checkpoint import Checkpoint
from model.pooling import Pooling

TOKENIZER_NAME = "tokenizer.json"

_OWN_FIELDS = ("task", "languages", "directions", "training", "embedding", "generation", "alignment")
"""What the manifest has a place of its own for; the rest of the checkpoint's metadata is provenance."""

COMPUTE_DTYPES: dict[str, DType] = {"fp32": "float32", "int8": "float32", "int4": "float32", "fp16": "float16"}
"""The precisions that can be exported, and the type of the caches and of what is not quantised in each."""


class ExportError(ValueError):
    """An export that was refused; the message says what to do."""


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
    force: bool = False


def export_bundle(
    checkpoint: Checkpoint, folder: Path, options: ExportOptions, report: Callable[[str], None] = lambda _: None
) -> Manifest:
    """Write `checkpoint` as a bundle into `folder` and return its manifest; `report` is told of each step.

    The bundle is made beside its place and moved there once it has passed its parity check. Raises ExportError for
    options that cannot be, ParityError for a precision that differs too much.
    """
    options = dataclasses.replace(options, name=options.name or folder.resolve().name)
    _refuse(checkpoint, folder, options)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        precisions, attention = _write_graphs(checkpoint, partial, options, report)
        checkpoint.tokenizer.save(partial / TOKENIZER_NAME)
        parity = _check(checkpoint, partial, precisions, options, report)
        manifest = _describe(checkpoint, partial, precisions, attention, parity, options)
        _write_manifest(manifest, partial)
        load_bundle(partial)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _refuse(checkpoint: Checkpoint, folder: Path, options: ExportOptions) -> None:
    unknown = [name for name in options.precisions if name not in COMPUTE_DTYPES]
    if unknown or not options.precisions:
        raise ExportError(f"precision {', '.join(unknown) or 'missing'}: allowed are {', '.join(COMPUTE_DTYPES)}")
    if "int4" in options.precisions and checkpoint.config.architecture == "encoder":
        allowed = ", ".join(name for name in COMPUTE_DTYPES if name != "int4")
        raise ExportError(
            "precision int4 is for decoders, whose steps wait for weights; an encoder reads many rows at a time, where "
            f"int8 is faster and nearer: allowed are {allowed}"
        )
    if not 1 <= options.num_candidates <= checkpoint.config.vocab_size:
        raise ExportError(
            f"{options.num_candidates} candidates a step cannot be chosen, "
            f"allowed: 1 to {checkpoint.config.vocab_size}, the size of the vocabulary"
        )
    if options.calibration is not None and checkpoint.config.architecture != "encoder":
        raise ExportError(
            f"calibration texts are for encoders; a model of architecture {checkpoint.config.architecture!r} is "
            "measured on what it writes itself"
        )
    if "task" not in checkpoint.metadata:
        raise ExportError('the checkpoint\'s metadata.json has no task; add it, for instance "task": "translate"')
    _refuse_task(checkpoint)
    if not folder.exists():
        return
    if not options.force:
        raise ExportError(f"{folder} exists already; give another folder, or --force to replace it")
    if not (folder / MANIFEST_NAME).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} is not a bundle, so --force does not replace it; remove it or give another folder")


def _refuse_task(checkpoint: Checkpoint) -> None:
    task, architecture = checkpoint.metadata["task"], checkpoint.config.architecture
    if ARCHITECTURES.get(task) != architecture:
        fitting = next(name for name, needed in ARCHITECTURES.items() if needed == architecture)
        raise ExportError(
            f"the task in the checkpoint's metadata.json is {task!r}, but a model of architecture {architecture!r} "
            f"is for the task {fitting!r}"
        )
    sections: dict[str, type[BaseModel]] = {"embedding": Embedding} if task == "embed" else {}
    optional: dict[str, type[BaseModel]] = {"alignment": Alignment, "generation": Generation}
    sections |= {name: section for name, section in optional.items() if checkpoint.metadata.get(name) is not None}
    for name, section in sections.items():
        try:
            section.model_validate(checkpoint.metadata.get(name, {}))
        except ValidationError as error:
            raise ExportError(f"the {name} section of the checkpoint's metadata.json: {error}") from error


def _write_graphs(
    checkpoint: Checkpoint, folder: Path, options: ExportOptions, report: Callable[[str], None]
) -> tuple[dict[str, PrecisionSpec], GraphSpec | None]:
    """Trace every graph once per compute type, set its precision, and write graphs and weights."""
    weights, file = StoredWeights(_stored_tensors(checkpoint)), WeightFile(folder)
    graphs: dict[str, dict[str, GraphSpec]] = {precision: {} for precision in options.precisions}
    for dtype in dict.fromkeys(COMPUTE_DTYPES[precision] for precision in options.precisions):
        model = copy.deepcopy(checkpoint.model).to(TORCH_DTYPES[dtype])
        for definition in graph_definitions(model, dtype, _pooling(checkpoint)):
            report(f"tracing {definition.name} ({dtype})")
            traced = trace(definition)
            for precision in [name for name in options.precisions if COMPUTE_DTYPES[name] == dtype]:
                graph = traced.clone()
                if definition.name == "encoder":
                    part_projections(graph, weights)
                fold_scales(graph, weights)
                if precision == "int4" and definition.name == "decoder":
                    quantize_blocks(graph, weights)
                elif precision in ("int8", "int4"):  # an encoder reads many rows at a time, where int8 is the faster
                    quantize(graph, weights, _ranges(checkpoint, graph, weights, options.calibration))
                elif precision == "fp32" and definition.name == "encoder":
                    flatten_products(graph)
                bind_weights(graph, weights, file)
                name = f"{definition.name}.{precision}.onnx"
                ir.save(graph, folder / name)
                graphs[precision][definition.name] = GraphSpec(
                    file=name, inputs=definition.inputs, outputs=definition.outputs
                )
    attention = None
    if options.attention:
        report("tracing attention (float32)")
        definition = attention_definition(checkpoint.model)
        graph = trace(definition)
        fold_transposes(graph)
        bind_weights(graph, weights, file)
        ir.save(graph, folder / f"{definition.name}.onnx")
        attention = GraphSpec(file=f"{definition.name}.onnx", inputs=definition.inputs, outputs=definition.outputs)
    file.save()
    return {name: PrecisionSpec(graphs=graphs[name]) for name in options.precisions}, attention


def _ranges(
    checkpoint: Checkpoint, graph: ir.Model, weights: StoredWeights, calibration: Path | None
) -> Mapping[str, Range]:
    """The range of each product's input; an encoder's graph is equalised first, in place."""
    model = checkpoint.model
    if checkpoint.config.architecture != "encoder":
        return activation_ranges(model)
    limit = checkpoint.metadata["embedding"]["max_input_tokens"]
    try:
        texts = text_ids(checkpoint.tokenizer, calibration or TEXTS, limit)
    except (OSError, ValueError) as error:
        raise ExportError(f"calibration texts: {error}") from error
    return equalize(graph, weights, channel_ranges(model, texts))


def _pooling(checkpoint: Checkpoint) -> Pooling:
    pooling: Pooling = checkpoint.metadata.get("embedding", {}).get("pooling", "mean")
    return pooling


def _stored_tensors(checkpoint: Checkpoint) -> dict[str, Array]:
    """The weights in the type that the checkpoint holds them in, and in float32 the buffers, which it does not hold."""
    model = checkpoint.model
    tensors = {name: tensor.to(checkpoint.dtype).numpy() for name, tensor in model.state_dict().items()}
    return tensors | {name: tensor.numpy() for name, tensor in model.named_buffers()}


def _check(
    checkpoint: Checkpoint,
    folder: Path,
    precisions: dict[str, PrecisionSpec],
    options: ExportOptions,
    report: Callable[[str], None],
) -> dict[str, ParityReport]:
    """The parity report of every precision; ParityError with the failures of all of them."""
    reports, problems = {}, []
    for name, precision in precisions.items():
        report(f"checking {name} against PyTorch")
        try:
            reports[name] = (
                check_encoder_parity(checkpoint.model, folder, name, precision, _pooling(checkpoint))
                if checkpoint.config.architecture == "encoder"
                else check_parity(checkpoint.model, folder, name, precision, options.num_candidates)
            )
        except ParityError as error:
            problems.append(str(error))
    if problems:
        raise ParityError("; ".join(problems))
    return reports


def _describe(
    checkpoint: Checkpoint,
    folder: Path,
    precisions: dict[str, PrecisionSpec],
    attention: GraphSpec | None,
    parity: dict[str, ParityReport],
    options: ExportOptions,
) -> Manifest:
    config, metadata = checkpoint.config, checkpoint.metadata
    languages = (
        {"codes": metadata["languages"], "directions": metadata.get("directions", ())}
        if "languages" in metadata
        else None
    )
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return Manifest.model_validate(
        {
            "name": options.name,
            "task": metadata["task"],
            "languages": languages,
            "model": config.to_dict(),
            "tokenizer": TOKENIZER_NAME,
            "precisions": {name: spec.model_dump() for name, spec in precisions.items()},
            "attention": None if attention is None else attention.model_dump(),
            "limits": Limits(max_source_tokens=config.max_seq_len, max_target_tokens=config.max_seq_len).model_dump(),
            "decoding": DecodingDefaults(num_candidates=options.num_candidates).model_dump(),
            "embedding": metadata.get("embedding"),
            "generation": metadata.get("generation"),
            "alignment": metadata.get("alignment"),
            "weights": {
                "dtype": str(checkpoint.dtype).removeprefix("torch."),
                "num_parameters": checkpoint.model.num_parameters(),
                "sha256": file_record(folder / WEIGHTS_NAME).sha256,
                **{key: value for key, value in metadata.items() if key not in _OWN_FIELDS},
            },
            "training": metadata.get("training", {}),
            "parity": {name: spec.model_dump() for name, spec in parity.items()},
            "files": {path.relative_to(folder).as_posix(): file_record(path).model_dump() for path in files},
        }
    )


def _write_manifest(manifest: Manifest, folder: Path) -> None:
    text = json.dumps(manifest.model_dump(mode="json"), indent=2, ensure_ascii=False)
    (folder / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")
