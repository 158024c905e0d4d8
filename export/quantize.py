"""int8: every product with a weight becomes one of 8-bit integers, weights quantised per output channel.

The weights are not stored again: the graph quantises them from the shared weights file, and ONNX Runtime folds that
once as it loads the graph, so a step sees plain int8 constants. Their scales are stored. Attention, norms, softmax and
the lookup of embeddings stay in float32. Inputs are unsigned and weights signed: the pair that VNNI multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from export.calibration import PROJECTION, Range
from export.derived import (
    Product,
    as_product,
    constant,
    module_name,
    numbers,
    replace_product,
    weight_name,
)
from export.weights import StoredWeights

MICROSOFT = "com.microsoft"

UINT8_MAX = 255
INT8_MAX = 127
"""Scales map to -127..127: symmetric, so that weights need no zero point."""


def quantize(model: ir.Model, weights: StoredWeights, ranges: Mapping[str, Range]) -> None:
    """Turn every float32 product with a constant matrix in `model` into an int8 one, in place.

    `ranges` are those of `export.calibration`. The weights are still in memory: `export.weights.bind_weights`
    comes after this.
    """
    graph = model.graph
    model.opset_imports[MICROSOFT] = 1
    quantized_weights: dict[tuple[str, bool], _Quantized] = {}
    quantized_inputs: dict[tuple[str | None, Range], _Quantized] = {}
    for node in list(graph):
        product = as_product(node)
        if product is None:
            continue
        left, weight = product.left, product.weight
        name = weight_name(weight, weights)
        key = (name, product.is_transposed)
        if key not in quantized_weights:
            quantized_weights[key] = _quantize_weight(graph, node, weight, product.is_transposed, name)
        span = ranges[_module_name(weight, weights)]
        if (left.name, span) not in quantized_inputs:
            quantized_inputs[left.name, span] = _quantize_input(graph, node, left, span)
        _substitute(graph, product, quantized_inputs[left.name, span], quantized_weights[key])


class _Quantized(NamedTuple):
    """A matrix of integers with its scale and its zero point."""

    integers: ir.Value
    scale: ir.Value
    zero_point: ir.Value


def _module_name(weight: ir.Value, weights: StoredWeights) -> str:
    """The linear map that a weight belongs to; a tied projection's weight is the embedding."""
    name = module_name(weight, weights)
    return PROJECTION if name == "embedding.token" else name


def _quantize_input(graph: ir.Graph, node: ir.Node, states: ir.Value, span: Range) -> _Quantized:
    """`states` as unsigned 8-bit integers, in front of `node`: values beyond `span` are clipped."""
    scale = max(span.high - span.low, 1e-6) / UINT8_MAX
    name = f"{states.name}.uint8"
    quantized = ir.node(
        "QuantizeLinear",
        [
            states,
            step := constant(graph, f"{name}.scale", np.array(scale, np.float32)),
            zero := constant(graph, f"{name}.zero_point", np.array(round(-span.low / scale), np.uint8)),
        ],
        name=name,
    )
    quantized.outputs[0].name = name
    graph.insert_before(node, quantized)
    return _Quantized(quantized.outputs[0], step, zero)


def _quantize_weight(graph: ir.Graph, user: ir.Node, weight: ir.Value, transposed: bool, name: str) -> _Quantized:
    """The int8 form (K,N) of `weight` and its scales (N); `transposed` says that the weight is (N,K)."""
    name = f"{name}.int8"
    largest = np.abs(numbers(weight)).max(axis=1 if transposed else 0)
    # A channel of zeros keeps a scale that can be divided by.
    scales = np.where(largest > 0, largest / INT8_MAX, 1.0).astype(np.float32)
    scale = constant(graph, f"{name}.scale", scales)
    zero_point = constant(graph, f"{name}.zero_point", np.zeros(scales.shape, np.int8))
    axis = 0 if transposed else 1
    nodes = [ir.node("QuantizeLinear", [weight, scale, zero_point], attributes={"axis": axis}, name=name)]
    if transposed:
        perm = {"perm": [1, 0]}
        nodes.append(ir.node("Transpose", [nodes[0].outputs[0]], attributes=perm, name=f"{name}.transposed"))
    for node in nodes:
        node.outputs[0].name = node.name
    graph.insert_before(user if weight.producer() else graph[0], nodes)
    return _Quantized(nodes[-1].outputs[0], scale, zero_point)


def _substitute(graph: ir.Graph, product: Product, left: _Quantized, right: _Quantized) -> None:
    """Put one MatMulIntegerToFloat in the place of the product and its bias."""
    inputs = [left.integers, right.integers, left.scale, right.scale, left.zero_point, None, product.bias]
    node = ir.node("MatMulIntegerToFloat", inputs, domain=MICROSOFT, name=f"{product.node.name}.int8")
    replace_product(graph, product, node)
