"""int8: every product with a weight becomes one of 8-bit integers, weights quantised per output channel.

The weights are not stored again: the graph quantises them from the shared weights file, and ONNX Runtime folds that once as
it loads the graph, so a step sees plain int8 constants. Their scales are stored. Attention, norms, softmax and the lookup of
embeddings stay in float32, as in https://arxiv.org/abs/1906.00532.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from export.weights import StoredWeights

MICROSOFT = "com.microsoft"

INT8_MAX = 127
"""Scales map to -127..127: symmetric, so that weights need no zero point."""


class _Product(NamedTuple):
    """A product with a weight, with the addition of its bias if there is one."""

    node: ir.Node
    bias: ir.Value | None
    result: ir.Value
    nodes: tuple[ir.Node, ...]


def quantize(model: ir.Model, weights: StoredWeights) -> None:
    """Turn every float32 product with a constant matrix in `model` into an int8 one, in place.

    The weights are still in memory: `export.weights.bind_weights` comes after this.
    """
    graph = model.graph
    model.opset_imports[MICROSOFT] = 1
    quantized: dict[tuple[str | None, bool], tuple[ir.Value, ir.Value]] = {}
    for node in list(graph):
        product = _product(node)
        if product is None:
            continue
        weight = node.inputs[1]
        assert weight is not None
        key = (weight.name, _is_transposed(node))
        if key not in quantized:
            quantized[key] = _quantize_weight(graph, weight, _is_transposed(node), weights)
        integers, scales = quantized[key]
        _substitute(graph, product, integers, scales)


def _is_transposed(node: ir.Node) -> bool:
    return node.op_type == "Gemm" and node.attributes["transB"].as_int() == 1


def _product(node: ir.Node) -> _Product | None:
    """`node` as a product that can be quantised, or None."""
    if node.op_type not in ("MatMul", "Gemm") or node.inputs[1] is None or node.inputs[1].const_value is None:
        return None
    result = node.outputs[0]
    if node.op_type == "Gemm":
        return _Product(node, node.inputs[2] if len(node.inputs) > 2 else None, result, (node,))
    uses = list(result.uses())
    if len(uses) == 1 and uses[0].node.op_type == "Add":
        add = uses[0].node
        bias = add.inputs[1 - uses[0].idx]
        if bias is not None and bias.const_value is not None and len(bias.const_value.shape) == 1:
            return _Product(node, bias, add.outputs[0], (add, node))
    return _Product(node, None, result, (node,))


def _quantize_weight(
    graph: ir.Graph, weight: ir.Value, transposed: bool, weights: StoredWeights
) -> tuple[ir.Value, ir.Value]:
    """The int8 form (K,N) of `weight` and its scales (N); `transposed` says that the weight is (N,K)."""
    assert weight.const_value is not None
    values = weight.const_value.numpy()
    found = weights.find(values)
    name = f"{found[0] if found else weight.name}.int8"
    largest = np.abs(values).max(axis=1 if transposed else 0)
    # A channel of zeros keeps a scale that can be divided by.
    scales = np.where(largest > 0, largest / INT8_MAX, 1.0).astype(np.float32)
    scale = _constant(graph, f"{name}.scale", scales)
    zero_point = _constant(graph, f"{name}.zero_point", np.zeros(scales.shape, np.int8))
    nodes = [
        ir.node("QuantizeLinear", [weight, scale, zero_point], attributes={"axis": 0 if transposed else 1}, name=name)
    ]
    if transposed:
        nodes.append(
            ir.node("Transpose", [nodes[0].outputs[0]], attributes={"perm": [1, 0]}, name=f"{name}.transposed")
        )
    for node in nodes:
        node.outputs[0].name = node.name
    graph.insert_before(graph[0], nodes)
    return nodes[-1].outputs[0], scale


def _constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.initializers.add(value)
    return value


def _substitute(graph: ir.Graph, product: _Product, integers: ir.Value, scales: ir.Value) -> None:
    """Put one DynamicQuantizeMatMul in the place of the product and its bias."""
    inputs = [product.node.inputs[0], integers, scales, None]
    if product.bias is not None:
        inputs.append(product.bias)
    node = ir.node("DynamicQuantizeMatMul", inputs, domain=MICROSOFT, name=f"{product.node.name}.int8")
    old, new = product.result, node.outputs[0]
    graph.insert_before(product.nodes[0], node)
    new.name, new.dtype, new.shape = old.name, old.dtype, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    for replaced in product.nodes:
        graph.remove(replaced, safe=True)
