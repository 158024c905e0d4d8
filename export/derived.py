"""Weights made of weights: a slice, a product, a copy of some columns, computed once as a session loads the graph.

The weights file holds each tensor once. What a graph wants in another form stands in it as operators on constants,
which ONNX Runtime folds. Beside the operator each derived value carries the numbers it will have, for the passes that
come later: quantisation needs them to choose its scales.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from export.weights import Array, StoredWeights, WeightError


class Product(NamedTuple):
    """A product of states with a constant matrix, and the addition of its bias if there is one."""

    node: ir.Node
    bias: ir.Value | None
    result: ir.Value
    nodes: tuple[ir.Node, ...]

    @property
    def left(self) -> ir.Value:
        """The states."""
        value = self.node.inputs[0]
        assert value is not None
        return value

    @property
    def weight(self) -> ir.Value:
        """The matrix, (K,N) or transposed."""
        value = self.node.inputs[1]
        assert value is not None
        return value

    @property
    def is_transposed(self) -> bool:
        """Whether the matrix is (N,K)."""
        return self.node.op_type == "Gemm" and self.node.attributes["transB"].as_int() == 1


def as_product(node: ir.Node) -> Product | None:
    """`node` as a product that can be quantised, or None."""
    if node.op_type not in ("MatMul", "Gemm") or node.inputs[1] is None or node.inputs[1].const_value is None:
        return None
    result = node.outputs[0]
    if node.op_type == "Gemm":
        return Product(node, node.inputs[2] if len(node.inputs) > 2 else None, result, (node,))
    uses = list(result.uses())
    if len(uses) == 1 and uses[0].node.op_type == "Add":
        add = uses[0].node
        bias = add.inputs[1 - uses[0].idx]
        if bias is not None and bias.const_value is not None and len(bias.const_value.shape) == 1:
            return Product(node, bias, add.outputs[0], (add, node))
    return Product(node, None, result, (node,))


def produced_by(value: ir.Value | None) -> Product | None:
    """The product that `value` is the result of, bias included, or None."""
    node = None if value is None else value.producer()
    if node is None:
        return None
    for candidate in (node, *(operand.producer() for operand in node.inputs if operand is not None)):
        product = None if candidate is None else as_product(candidate)
        if product is not None and product.result is value:
            return product
    return None


def module_name(weight: ir.Value, weights: StoredWeights) -> str:
    """The linear map of the checkpoint that `weight`, stored or derived, belongs to."""
    name: str | None = weight.meta.get("module")
    if name is None:
        found = weights.find(numbers(weight))
        if found is None:
            raise WeightError(
                f"{weight.name} is no weight of the checkpoint; this is a fault of the exporter, please report it"
            )
        name = found[0].removesuffix(".transposed").removesuffix(".weight")
    return name


def weight_name(weight: ir.Value, weights: StoredWeights) -> str:
    """That of the stored tensor, under which equal weights are quantised once, or of the derived value."""
    found = None if weight.producer() else weights.find(numbers(weight))
    return found[0] if found else str(weight.name)


def numbers(value: ir.Value | None) -> Array:
    """What a constant holds."""
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()


def constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A constant of its own in the graph."""
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.initializers.add(value)
    return value


def derive(
    user: ir.Node,
    name: str,
    operator: str,
    inputs: Sequence[ir.Value],
    array: np.ndarray,
    attributes: Mapping[str, Any] | None = None,
) -> ir.Value:
    """The constant `array` as `operator` on other constants, in front of the node that will use it."""
    node = ir.node(operator, list(inputs), attributes=attributes, name=name)
    value = node.outputs[0]
    value.name, value.shape, value.const_value = name, ir.Shape(array.shape), ir.tensor(array, name=name)
    value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
    assert user.graph is not None
    user.graph.insert_before(user, node)
    return value


def replace_constants(product: Product, weight: ir.Value, bias: ir.Value | None = None, module: str = "") -> None:
    """Let `product` multiply by `weight` of the map `module`, and add `bias` unless it is None."""
    weight.meta["module"] = module
    product.node.replace_input_with(1, weight)
    if bias is not None:
        adding = product.nodes[0]
        place = next(index for index, operand in enumerate(adding.inputs) if operand is product.bias)
        adding.replace_input_with(place, bias)


def replace_product(graph: ir.Graph, product: Product, node: ir.Node) -> None:
    """Put `node`, whose first output is the result, in the place of the product and of its bias."""
    old, new = product.result, node.outputs[0]
    graph.insert_before(product.nodes[0], node)
    new.name, new.type, new.shape = old.name, old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    for replaced in product.nodes:
        graph.remove(replaced, safe=True)
