"""Trace a graph definition into ONNX: opset 24, with Polyhead's own operators as their ONNX counterparts."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import CommonSubexpressionEliminationPass
from onnxscript.values import Opset
from torch.export import Dim

from export import ranking
from export.graphs import GraphDefinition

OPSET = 24
"""The first opset with TensorScatter, and with `nonpad_kv_seqlen` in Attention."""

op = Opset("", OPSET)


def _rotate(states: Any, cosines: Any, sines: Any, positions: Any, num_heads: int) -> Any:
    """`polyhead::rotate` is RotaryEmbedding in its 3-D form, which looks the angles of each position up."""
    return op.RotaryEmbedding(states, cosines, sines, positions, num_heads=num_heads)


def _update_cache(cache: Any, new: Any, write_indices: Any) -> Any:
    """`polyhead::update_cache` is TensorScatter along the positions, which works in place on a shared buffer."""
    return op.TensorScatter(cache, new, write_indices, axis=1)


def _attend(
    query: Any,
    key: Any,
    value: Any,
    lengths: Any,
    num_heads: int,
    num_kv_heads: int,
    is_causal: bool,
    bias: Any = None,
    scale: float | None = None,
) -> Any:
    """`polyhead::attend` is Attention in its 3-D form, heads side by side; the first of its four results."""
    # ONNX Runtime's CPU kernel multiplies one query by its keys a quarter faster when there is nothing left to scale.
    # D is known only to the tracer's shapes, which a symbolic query carries.
    width = query.shape[-1]
    scale = (width // num_heads) ** -0.5 if scale is None else scale
    scaled = query if scale == 1.0 else op.Mul(query, op.CastLike(scale, query))
    is_shared = query.shape[0] != key.shape[0]
    queries = scaled
    if is_shared:  # the K rows of one source as one row of K queries
        queries = op.Reshape(
            scaled, op.Concat(op.Shape(key, start=0, end=1), op.Constant(value_ints=[-1, width]), axis=0)
        )
    results = op.Attention(
        queries,
        key,
        value,
        bias,
        None,  # past key
        None,  # past value
        lengths,
        q_num_heads=num_heads,
        kv_num_heads=num_kv_heads,
        is_causal=int(is_causal),
        scale=1.0,
    )
    return op.Reshape(results[0], op.Shape(scaled)) if is_shared else results[0]


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.polyhead.rotate.default: _rotate,
    torch.ops.polyhead.update_cache.default: _update_cache,
    torch.ops.polyhead.attend.default: _attend,
    **ranking.translations(op),
}


def trace(definition: GraphDefinition) -> ir.Model:
    """The ONNX graph of `definition`, its weights in memory, free of anything that names the machine."""
    dims = {name: Dim(name) for name in sorted(_dim_names(definition))}
    shapes = tuple(
        {axis: dims[size] for axis, size in enumerate(spec.shape) if isinstance(size, str)}
        for spec in definition.inputs
    )
    variadic = definition.module.forward.__code__.co_flags & 0x04  # CO_VARARGS: the shapes are then nested once more
    with _quiet():
        program = torch.onnx.export(
            definition.module.eval(),
            definition.example(),
            dynamo=True,
            opset_version=OPSET,
            input_names=[spec.name for spec in definition.inputs],
            output_names=[spec.name for spec in definition.outputs],
            dynamic_shapes=(shapes,) if variadic else shapes,
            custom_translation_table=TRANSLATIONS,
            verbose=False,
        )
    assert program is not None  # only a call that writes the file itself returns None
    model = program.model
    for value, spec in zip(model.graph.outputs, definition.outputs, strict=True):
        value.shape = ir.Shape(spec.shape)  # the tracer invents names for sizes that an input decides
    _merge_shapes(model)
    _strip(model)
    return model


def _merge_shapes(model: ir.Model) -> None:
    """Ask for equal shapes once: every layer asks for its own, and at small batches each costs as much as a norm."""
    known: dict[tuple[str, ...], ir.Value] = {}
    for node in list(model.graph):
        operand = node.inputs[0] if node.inputs else None
        if node.op_type != "Shape" or operand is None or operand.shape is None:
            continue
        dims = [str(size) for size in operand.shape]
        # A dimension without a name is unknown, and equal to no other.
        if "None" in dims:
            continue
        span = [str(node.attributes[name].as_int()) if name in node.attributes else "" for name in ("start", "end")]
        first = known.setdefault((*dims, *span), node.outputs[0])
        if first is not node.outputs[0]:
            ir.convenience.replace_all_uses_with(node.outputs[0], first)
            model.graph.remove(node, safe=True)
    CommonSubexpressionEliminationPass()(model)


def _dim_names(definition: GraphDefinition) -> set[str]:
    return {size for spec in definition.inputs for size in spec.shape if isinstance(size, str)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the tracer's messages of every call: optional packages, and axes that share a name."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="# The axis name")
            warnings.filterwarnings("ignore", message=".*isinstance.treespec, LeafSpec")
            warnings.filterwarnings("ignore", message="Exporting a model while it is in training mode")
            yield
    finally:
        logger.setLevel(level)


def _strip(model: ir.Model) -> None:
    """Drop stack traces, module paths and other notes of the tracer: they hold paths and make the bytes vary."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.doc_string = model.graph.doc_string = None
    model.producer_name, model.producer_version = "polyhead", None
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
        value.doc_string = None
