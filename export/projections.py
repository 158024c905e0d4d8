"""The projections of attention, made so that a session has less to do: two rewritings of a graph.

`part_projections` makes query, key and value three products instead of one that is then cut, because the cut copies
every number once more. In a step of a decoder, with few rows, one product is the faster way; over whole texts three are
(docs/decisions/0042-encoder-int8.md). `fold_scales` is for what stays one. In both the scale of the queries moves into
their weights.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from export.derived import Product, constant, derive, module_name, numbers, produced_by, replace_constants
from export.weights import StoredWeights

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_PARTS = ("query", "key", "value")


def part_projections(model: ir.Model, weights: StoredWeights) -> None:
    """Part every product that is only cut into query, key and value, or into key and value, in place."""
    graph = model.graph
    for split in [node for node in graph if node.op_type == "Split"]:
        product = produced_by(split.inputs[0])
        if product is None or product.bias is None or len(product.result.uses()) > 1:
            continue
        module = module_name(product.weight, weights)
        parts = _PARTS[-len(split.outputs) :]
        sizes = [numbers(product.weight).shape[1] // len(parts)] * len(parts)
        if len(split.inputs) > 1:
            sizes = numbers(split.inputs[1]).tolist()
        start = 0
        for part, result, size in zip(parts, split.outputs, sizes, strict=True):
            _part(graph, product, f"{module}.{part}", module, result, (start, start + size))
            start += size
        graph.remove(split, safe=True)
        for node in product.nodes:
            graph.remove(node, safe=True)


def fold_scales(model: ir.Model, weights: StoredWeights) -> None:
    """Move constants that the result of a product, or the first part of it, is multiplied by into weights, in place."""
    for scaling in [node for node in model.graph if node.op_type == "Mul"]:
        operand = next((value for value in scaling.inputs if value is not None and value.const_value is None), None)
        if operand is None or len(operand.uses()) > 1:
            continue
        factor, scaled = _factor(operand)
        if factor is None:
            continue
        split = operand.producer()
        is_first_part = split is not None and split.op_type == "Split" and split.outputs[0] is operand
        product = produced_by(split.inputs[0] if is_first_part and split is not None else operand)
        if product is None or product.node.op_type != "MatMul" or len(product.result.uses()) > 1:
            continue
        factors = numbers(factor).reshape(1)
        if is_first_part:
            assert operand.shape is not None
            width, part_width = numbers(product.weight).shape[1], operand.shape[-1]
            assert isinstance(part_width, int)
            factors = np.where(np.arange(width) < part_width, factors, 1).astype(factors.dtype)
        _scale(model.graph, product, module_name(product.weight, weights), factors)
        scaled.replace_all_uses_with(operand)
        model.graph.remove(scaling, safe=True)


def _scale(graph: ir.Graph, product: Product, module: str, factors: np.ndarray) -> None:
    """Multiply the columns of the weight and of the bias by `factors`, (N) or (1)."""
    first, name = product.nodes[-1], f"{module}.scaled"
    by = constant(graph, f"{name}.scale", factors)
    weight = derive(first, f"{name}.weight", "Mul", [product.weight, by], numbers(product.weight) * factors)
    bias = None
    if product.bias is not None:
        bias = derive(first, f"{name}.bias", "Mul", [product.bias, by], numbers(product.bias) * factors)
    replace_constants(product, weight, bias, module)


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
    add.outputs[0].name = scaled.name if scaled.is_graph_output() else f"{name}.biased"
    scaled.replace_all_uses_with(add.outputs[0], replace_graph_outputs=True)
    if scaled is not result:
        scaling = scaled.producer()
        assert scaling is not None
        graph.remove(scaling, safe=True)


def _factor(result: ir.Value) -> tuple[ir.Value | None, ir.Value]:
    """The constant number that `result` is multiplied by and nothing else is done with it, and what comes of it.

    None for float16 and bfloat16: ONNX Runtime folds constants on the CPU, which multiplies neither.
    """
    uses = list(result.uses())
    if len(uses) == 1 and uses[0].node.op_type == "Mul":
        factor = uses[0].node.inputs[1 - uses[0].idx]
        known = factor is not None and factor.const_value is not None and factor.dtype not in _HALVES
        if known and numbers(factor).size == 1:
            return factor, uses[0].node.outputs[0]
    return None, result
