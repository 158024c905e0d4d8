"""Query, key and value as three products instead of one that is then cut: for encoders.

The cut copies every number once more. In a step of a decoder, with few rows, one product is the faster way; over whole
texts three are (docs/decisions/0042-encoder-int8.md). The scale of the queries moves into their weights.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from export.derived import Product, constant, derive, module_name, numbers, produced_by
from export.weights import StoredWeights

_PARTS = ("query", "key", "value")


def part_projections(model: ir.Model, weights: StoredWeights) -> None:
    """Part every product that is only cut into query, key and value, in place."""
    graph = model.graph
    for split in [node for node in graph if node.op_type == "Split" and len(node.outputs) == len(_PARTS)]:
        product = produced_by(split.inputs[0])
        if product is None or product.bias is None or len(product.result.uses()) > 1:
            continue
        module = module_name(product.weight, weights)
        sizes = [numbers(product.weight).shape[1] // len(_PARTS)] * len(_PARTS)
        if len(split.inputs) > 1:
            sizes = numbers(split.inputs[1]).tolist()
        start = 0
        for part, result, size in zip(_PARTS, split.outputs, sizes, strict=True):
            _part(graph, product, f"{module}.{part}", module, result, (start, start + size))
            start += size
        graph.remove(split, safe=True)
        for node in product.nodes:
            graph.remove(node, safe=True)


def _part(
    graph: ir.Graph, product: Product, name: str, module: str, result: ir.Value, columns: tuple[int, int]
) -> None:
    """Make `result` the product with some columns of the weight, and with the factor that it is multiplied by next."""
    first = product.nodes[-1]
    bounds = [
        constant(graph, f"{name}.{key}", np.array([place]))
        for key, place in zip(("start", "end"), columns, strict=True)
    ]
    axis = constant(graph, f"{name}.axis", np.array([-1]))
    arrays = [numbers(product.weight)[:, slice(*columns)], numbers(product.bias)[slice(*columns)]]
    values = []
    factor, scaled = _factor(result)
    for kind, whole, array in zip(("weight", "bias"), (product.weight, product.bias), arrays, strict=True):
        assert whole is not None
        value = derive(first, f"{name}.{kind}.cut", "Slice", [whole, *bounds, axis], array)
        if factor is not None:
            value = derive(first, f"{name}.{kind}", "Mul", [value, factor], array * numbers(factor))
        values.append(value)
    weight, bias = values
    weight.meta["module"] = module
    multiply = ir.node("MatMul", [product.left, weight], name=name)
    add = ir.node("Add", [multiply.outputs[0], bias], name=f"{name}.biased")
    multiply.outputs[0].name = f"{name}.product"
    graph.insert_before(first, [multiply, add])
    for value in (multiply.outputs[0], add.outputs[0]):
        value.type, value.shape = result.type, result.shape
    add.outputs[0].name = f"{name}.biased"
    scaled.replace_all_uses_with(add.outputs[0])
    if scaled is not result:
        scaling = scaled.producer()
        assert scaling is not None
        graph.remove(scaling, safe=True)


def _factor(result: ir.Value) -> tuple[ir.Value | None, ir.Value]:
    """The constant number that `result` is multiplied by and nothing else is done with it, and what comes of it."""
    uses = list(result.uses())
    if len(uses) == 1 and uses[0].node.op_type == "Mul":
        factor = uses[0].node.inputs[1 - uses[0].idx]
        if factor is not None and factor.const_value is not None and numbers(factor).size == 1:
            return factor, uses[0].node.outputs[0]
    return None, result
