"""Self-attention of a decoder as one operator of ONNX Runtime, `GroupQueryAttention`, in place of three of ONNX.

It writes the new keys and values into the cache itself, in place where both are bound to one buffer, and attends to
what the cache then holds. It wants the cache of each head together, (B,KV,C,D), and int32 lengths, and reads several
tokens of one row alone. Rotation stays an operator of its own, before it, so that both ways rotate alike.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from export.derived import constant
from export.graphs import GraphDefinition
from export.manifest import TensorSpec
from export.quantize import MICROSOFT
from model.config import ModelConfig

GROUP_QUERY_PRECISIONS = ("fp16", "bf16")
"""Those for which the CUDA provider has a kernel."""

_MAX_HEAD_SIZE, _HEAD_SIZE_STEP = 256, 8


def group_query_problems(config: ModelConfig) -> list[str]:
    """Why the operator cannot compute the self-attention of a decoder with `config`, in words."""
    problems = []
    if config.architecture == "encoder":
        problems.append("a model of architecture 'encoder' has no cache")
    if config.relative_bias != "none":
        problems.append(
            f"relative_bias is {config.relative_bias!r}, and the operator's bias would be made at every step"
        )
    if config.windowed_layers:
        problems.append("windowed_layers are given, whose windows are a bias here")
    if config.head_size % _HEAD_SIZE_STEP or config.head_size > _MAX_HEAD_SIZE:
        problems.append(
            f"head_size is {config.head_size}, it must be a multiple of {_HEAD_SIZE_STEP} up to {_MAX_HEAD_SIZE}"
        )
    return problems


def use_group_query(model: ir.Model, definition: GraphDefinition, config: ModelConfig) -> GraphDefinition:
    """Rewrite the decoder `model` in place; returns `definition` with the caches as the new graph has them."""
    model.opset_imports[MICROSOFT] = 1
    heads, graph = config.num_kv_heads or config.num_heads, model.graph
    specs = {spec.name: _by_head(spec, heads) for spec in (*definition.inputs, *definition.outputs)}
    for value in (*graph.inputs, *graph.outputs):
        assert value.name is not None
        value.shape = ir.Shape(specs[value.name].shape)
    sizes: list[ir.Value] = []
    for attention in [node for node in graph if node.op_type == "Attention"]:
        writers = [value.producer() for value in attention.inputs[1:3] if value is not None]
        if any(writer is None or writer.op_type != "TensorScatter" for writer in writers):
            continue  # to a source
        if not sizes:
            sizes = _sizes(graph, attention)
        _replace(graph, attention, [writer for writer in writers if writer is not None], sizes)
    return replace(
        definition,
        inputs=tuple(specs[spec.name] for spec in definition.inputs),
        outputs=tuple(specs[spec.name] for spec in definition.outputs),
    )


def _by_head(spec: TensorSpec, heads: int) -> TensorSpec:
    if "_cache." not in spec.name:
        return spec
    rows, capacity, width = spec.shape
    assert isinstance(width, int)
    return spec.model_copy(update={"shape": (rows, heads, capacity, width // heads)})


def _sizes(graph: ir.Graph, attention: ir.Node) -> list[ir.Value]:
    """What every node wants: the place of each row's last token (B), and the capacity (1), which stays on the host."""
    lengths, cache = attention.inputs[6], next(value for value in graph.inputs if value.name == "key_cache.0")
    last = ir.node("Sub", [lengths, constant(graph, "group_query.one", np.array(1, np.int64))], name="group_query.last")
    short = ir.node("Cast", last.outputs, attributes={"to": ir.DataType.INT32}, name="group_query.last_int32")
    size = ir.node("Shape", [cache], attributes={"start": 2, "end": 3}, name="group_query.capacity")
    total = ir.node("Cast", size.outputs, attributes={"to": ir.DataType.INT32}, name="group_query.capacity_int32")
    for node in (last, short, size, total):
        node.outputs[0].name = node.name
    graph.insert_before(attention, [last, short, size, total])
    return [short.outputs[0], total.outputs[0]]


def _replace(graph: ir.Graph, attention: ir.Node, writers: list[ir.Node], sizes: list[ir.Value]) -> None:
    entering, caches = [writer.inputs[1] for writer in writers], [writer.inputs[0] for writer in writers]
    attributes = {
        "num_heads": attention.attributes["q_num_heads"].as_int(),
        "kv_num_heads": attention.attributes["kv_num_heads"].as_int(),
        "scale": attention.attributes["scale"].as_float(),
    }
    node = ir.node(
        "GroupQueryAttention",
        [attention.inputs[0], *entering, *caches, *sizes],
        attributes=attributes,
        domain=MICROSOFT,
        num_outputs=3,
        name=f"{attention.name}.group_query",
    )
    graph.insert_before(attention, node)
    for old, new in zip((attention.outputs[0], *(writer.outputs[0] for writer in writers)), node.outputs, strict=True):
        new.name, new.type, new.shape = old.name, old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    for gone in (attention, *writers):
        graph.remove(gone, safe=True)
