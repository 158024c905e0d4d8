"""Products of an encoder over a list of tokens, not over texts of tokens: then the bias is part of the product.

A product of (B,S,K) states with a matrix is a MatMul, and its bias an Add, which reads and writes every number once
more. Of (B*S,K) states it is a Gemm, which adds the bias as it multiplies. Between the two forms nothing is copied.
Only where texts run: in a step of a decoder there is too little to add for the two operators more to be worth it.
See docs/decisions/0042-encoder-int8.md.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from export.derived import Product, as_product, constant, replace_product


def flatten_products(model: ir.Model) -> None:
    """Make each product of 3-D states with a constant matrix that has a bias a Gemm of 2-D states, in place.

    The first input of the graph is the ids (B,S), whose shape every result gets back.
    """
    graph = model.graph
    shape: ir.Value | None = None
    flat: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        product = as_product(node)
        if product is None or node.op_type != "MatMul" or product.bias is None:
            continue
        if product.left.shape is None or len(product.left.shape) != 3:
            continue
        if shape is None:
            shape = _text_shape(graph)
        if product.left not in flat:
            flat[product.left] = _flatten(graph, product)
        _substitute(graph, product, flat[product.left], shape)


def _text_shape(graph: ir.Graph) -> ir.Value:
    """What to reshape (B*S,N) numbers to: the sizes of the ids, and whatever is left."""
    sizes = ir.node("Shape", [graph.inputs[0]], name="texts.sizes")
    rest = constant(graph, "texts.rest", np.array([-1], np.int64))
    joined = ir.node("Concat", [sizes.outputs[0], rest], attributes={"axis": 0}, name="texts.shape")
    for node in (sizes, joined):
        node.outputs[0].name = node.name
    graph.insert_before(graph[0], [sizes, joined])
    return joined.outputs[0]


def _flatten(graph: ir.Graph, product: Product) -> ir.Value:
    """The states (B,S,K) that `product` multiplies as (B*S,K)."""
    node = ir.node("Flatten", [product.left], attributes={"axis": 2}, name=f"{product.left.name}.flat")
    node.outputs[0].name, node.outputs[0].type = node.name, product.left.type
    graph.insert_before(product.node, node)
    return node.outputs[0]


def _substitute(graph: ir.Graph, product: Product, states: ir.Value, shape: ir.Value) -> None:
    """Put a Gemm of `states` and a Reshape in the place of the product and its bias."""
    gemm = ir.node("Gemm", [states, product.weight, product.bias], name=f"{product.node.name}.flat")
    gemm.outputs[0].name = f"{product.result.name}.flat"
    graph.insert_before(product.nodes[0], gemm)
    replace_product(graph, product, ir.node("Reshape", [gemm.outputs[0], shape], name=f"{product.node.name}.texts"))
