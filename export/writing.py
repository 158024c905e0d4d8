"""A bundle's files: its graphs, each traced once for a type, its weights, its tokenizer, and the manifest."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import onnx_ir as ir

from export.attention import attention_definition, fold_transposes
from export.bundle import file_record, load_bundle
from export.calibration import TEXTS, Range, activation_ranges, channel_ranges, text_ids
from export.comparison import ParityError
from export.cuda.check import CUDA_PRECISIONS, check_graph
from export.description import Content, ExportError
from export.equalize import equalize
from export.flatten import flatten_products
from export.graphs import TORCH_DTYPES, GraphDefinition, graph_definitions
from export.group_query import GROUP_QUERY_PRECISIONS, use_group_query
from export.index import INDEX_NAME, write_index
from export.manifest import MANIFEST_NAME, DType, GraphSpec, Manifest, ParityReport, PrecisionSpec
from export.parity import check_parity
from export.parity_encoder import check_encoder_parity
from export.projections import fold_scales, part_projections
from export.quantize import quantize
from export.quantize_blocks import quantize_blocks
from export.trace import trace
from export.weights import QUANTISED_NAME, WEIGHTS_NAME, Array, StoredWeights, WeightFile, bind_weights
from model.checkpoint import Checkpoint
from model.piece_tokenizer import PieceTokenizer

TOKENIZER_NAME = "tokenizer.json"

MIN_ONNXRUNTIME = "1.31"
"""The oldest ONNX Runtime that the graphs are right on: what causal attention means with a cache that is not its own
changed before it (onnxruntime #28958)."""

COMPUTE_DTYPES: dict[str, DType] = {
    "fp32": "float32",
    "int8": "float32",
    "int4": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}
"""The precisions that can be exported, and the type of the caches and of what is not quantised in each."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """Which graphs to write of a model, and what to call the bundle."""

    name: str
    precisions: Sequence[str]
    attention: bool
    calibration: Path | None = None
    """Texts, one a line, to measure an encoder on for int8; by default those of this package."""
    group_query: bool = False
    """Write the self-attention of half-precision decoders as one operator of ONNX Runtime."""


def write_bundle(content: Content, folder: Path, plan: Plan, report: Report) -> Manifest:
    """Write the bundle into `folder`, replacing what is there, and return its manifest.

    It is made beside its place and moved there once it has passed its parity check. Raises ParityError for a precision
    that differs too much, ExportError for calibration texts that cannot be read.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        precisions, attention = _write_graphs(content, partial, plan, report)
        tokenizers = _write_tokenizers(content.checkpoint, partial)
        parity = _check(content, partial, precisions, report)
        manifest = _describe(content, partial, plan, tokenizers, precisions, attention, parity)
        text = json.dumps(manifest.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=False)
        (partial / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")
        load_bundle(partial)
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _write_tokenizers(checkpoint: Checkpoint, folder: Path) -> dict[str, object]:
    """Write them, and return how the manifest names them: one for all, or one for either side."""
    source, target = checkpoint.tokenizer, checkpoint.target_tokenizer
    named = {"shared": source} if target is None else {"source": source, "target": target}
    sections: dict[str, object] = {}
    for role, tokenizer in named.items():
        name = TOKENIZER_NAME if role == "shared" else f"{role}.{TOKENIZER_NAME}"
        tokenizer.save(folder / name)
        section: dict[str, object] = {"file": name}
        if isinstance(tokenizer, PieceTokenizer):
            tokenizer.save_pieces(folder / f"{role}.pieces.json")
            section |= {"pieces": f"{role}.pieces.json", "unknown_id": tokenizer.unknown_id}
        sections[role] = section
    return sections


def _replace(new: Path, folder: Path) -> None:
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _write_graphs(
    content: Content, folder: Path, plan: Plan, report: Report
) -> tuple[dict[str, PrecisionSpec], GraphSpec | None]:
    """Trace every graph once per compute type, set its precision, and write graphs and weights."""
    checkpoint = content.checkpoint
    stored = _stored_tensors(content)
    weights = StoredWeights(stored)
    file, packed_file = WeightFile(folder), WeightFile(folder, QUANTISED_NAME)
    packed: set[str] = set()
    graphs: dict[str, dict[str, GraphSpec]] = {precision: {} for precision in plan.precisions}
    for dtype in dict.fromkeys(COMPUTE_DTYPES[precision] for precision in plan.precisions):
        model = copy.deepcopy(checkpoint.model).to(TORCH_DTYPES[dtype])
        for definition in graph_definitions(model, dtype, content.pooling, content.num_candidates, content.suppressed):
            report(f"tracing {definition.name} ({dtype})")
            traced = trace(definition)
            for precision in [name for name in plan.precisions if COMPUTE_DTYPES[name] == dtype]:
                graph = traced.clone()
                packed |= _set_precision(graph, definition, precision, weights, content, plan)
                written = definition
                if plan.group_query and precision in GROUP_QUERY_PRECISIONS and definition.name == "decoder":
                    written = use_group_query(graph, definition, checkpoint.config)
                bind_weights(graph, weights, file, packed_file)
                spec = _save(graph, folder, written, f"{definition.name}.{precision}")
                if precision in CUDA_PRECISIONS:
                    check_graph(folder / spec.file, precision, checkpoint.config)
                graphs[precision][definition.name] = spec
    attention = None
    if plan.attention:
        report("tracing attention (float32)")
        definition = attention_definition(checkpoint.model)
        graph = trace(definition)
        fold_transposes(graph)
        bind_weights(graph, weights, file)
        attention = _save(graph, folder, definition, definition.name)
        check_graph(folder / attention.file, "fp32", checkpoint.config)
    write_index(folder, stored, file, packed)
    file.save()
    if not packed_file.is_empty:
        packed_file.save()
    return {name: PrecisionSpec(graphs=graphs[name]) for name in plan.precisions}, attention


def _save(graph: ir.Model, folder: Path, definition: GraphDefinition, name: str) -> GraphSpec:
    ir.save(graph, folder / f"{name}.onnx")
    return GraphSpec(file=f"{name}.onnx", inputs=definition.inputs, outputs=definition.outputs)


def _set_precision(
    graph: ir.Model,
    definition: GraphDefinition,
    precision: str,
    weights: StoredWeights,
    content: Content,
    plan: Plan,
) -> set[str]:
    """Rewrite a traced graph for its precision, in place; returns the weights that it holds quantised."""
    if definition.name == "encoder":
        part_projections(graph, weights)
    fold_scales(graph, weights)
    if precision == "int4" and definition.name == "decoder":
        return quantize_blocks(graph, weights)
    if precision in ("int8", "int4"):  # an encoder reads many rows at a time, where int8 is the faster
        quantize(graph, weights, _ranges(content, graph, weights, plan.calibration))
    elif precision == "fp32" and definition.name == "encoder":
        flatten_products(graph)
    return set()


def _ranges(content: Content, graph: ir.Model, weights: StoredWeights, calibration: Path | None) -> Mapping[str, Range]:
    """The range of each product's input; an encoder's graph is equalised first, in place."""
    checkpoint = content.checkpoint
    if content.heads.embed is None:
        return activation_ranges(checkpoint.model)
    try:
        texts = text_ids(checkpoint.tokenizer, calibration or TEXTS, content.heads.embed.max_input_tokens)
    except (OSError, ValueError) as error:
        raise ExportError(f"calibration texts: {error}") from error
    return equalize(graph, weights, channel_ranges(checkpoint.model, texts))


def _stored_tensors(content: Content) -> dict[str, Array]:
    """The weights in the type that the checkpoint holds them in, and in float32 the buffers, which it does not hold."""
    model, dtype = content.checkpoint.model, content.checkpoint.dtype
    tensors = {name: tensor.to(dtype).numpy() for name, tensor in model.state_dict().items()}
    return tensors | {name: tensor.numpy() for name, tensor in model.named_buffers()}


def _check(
    content: Content, folder: Path, precisions: Mapping[str, PrecisionSpec], report: Report
) -> dict[str, ParityReport]:
    """The parity report of every precision; ParityError with the failures of all of them."""
    reports, problems = {}, []
    for name, precision in precisions.items():
        report(f"checking {name} against PyTorch")
        try:
            reports[name] = check_precision(content, folder, name, precision)
        except ParityError as error:
            problems.append(str(error))
    if problems:
        raise ParityError("; ".join(problems))
    return reports


def check_precision(content: Content, folder: Path, name: str, precision: PrecisionSpec) -> ParityReport:
    """The parity of the graphs of one precision in `folder` with the model; ParityError where they differ too much."""
    model = content.checkpoint.model
    if name == "bf16":
        return ParityReport(
            status="not_run",
            note="ONNX Runtime has no bfloat16 attention or products on the CPU; `python -m bench gpu` compares them",
        )
    if model.config.architecture == "encoder":
        return check_encoder_parity(model, folder, name, precision, content.pooling)
    return check_parity(model, folder, name, precision, content.num_candidates, content.suppressed)


def _describe(
    content: Content,
    folder: Path,
    plan: Plan,
    tokenizers: Mapping[str, object],
    precisions: Mapping[str, PrecisionSpec],
    attention: GraphSpec | None,
    parity: Mapping[str, ParityReport],
) -> Manifest:
    checkpoint, calibration = content.checkpoint, None
    if content.heads.embed is not None and "int8" in precisions:
        calibration = sha256((plan.calibration or TEXTS).read_bytes()).hexdigest()
    weights = {WEIGHTS_NAME: {"storage": "cast", "dtype": str(checkpoint.dtype).removeprefix("torch.")}}
    if (folder / QUANTISED_NAME).exists():
        weights[QUANTISED_NAME] = {"storage": "quantised", "dtype": "int4"}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return Manifest.model_validate(
        {
            "name": plan.name,
            "min_onnxruntime": MIN_ONNXRUNTIME,
            "model": checkpoint.config.to_dict(),
            "tokenizers": tokenizers,
            "heads": content.heads.model_dump(exclude_none=True),
            "precisions": {name: spec.model_dump() for name, spec in precisions.items()},
            "attention": None if attention is None else attention.model_dump(),
            "weights": weights,
            "index": INDEX_NAME,
            "calibration": calibration,
            "card": content.card,
            "training": content.training,
            "parity": {name: spec.model_dump() for name, spec in parity.items()},
            "files": {path.relative_to(folder).as_posix(): file_record(path).model_dump() for path in files},
        }
    )
