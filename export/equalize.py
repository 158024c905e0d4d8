"""What an encoder's int8 products need so that few channels do not decide how coarse all are.

An input has one scale, fixed at export (docs/decisions/0011-int8-fixed-scales.md), and in encoders single channels
reach ten times as far as the others. Two ways to bring them in, which leave the products what they were:

- *Equalising*, SmoothQuant (Xiao et al. 2022, https://arxiv.org/abs/2211.10438): divide each channel by a factor, and
  multiply the rows of the weight by it. The division goes into what comes before, the value's weights before the
  attention's output, a norm that feeds nothing else; or is one Mul.
- *Splitting*, after Zhao et al. 2019 (https://arxiv.org/abs/1901.09504): behind the feed-forward's activation a Mul
  would be four times as wide. There a channel h = f(x) that reaches beyond c becomes several: h itself, which the
  quantisation clips at c, and f(x - c), f(x - 2c) and so on, columns of the first product with a lower bias. For ReLU
  their sum is h, and nearly so for GELU: where x is large both are x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import onnx_ir as ir

from export.calibration import Channels, Range, round_up
from export.derived import (
    Product,
    as_product,
    constant,
    derive,
    module_name,
    numbers,
    produced_by,
    replace_constants,
)
from export.weights import Array, StoredWeights

_ACTIVATIONS = ("Relu", "Gelu")

STRENGTH = 0.75
"""SmoothQuant's alpha: the share of a channel's range that moves into the weight."""

_LEAST_LIMIT = 1e-9
"""Channels that reach no further are as good as zero."""

NUM_SPLITS = 16
"""Columns that splitting adds to a feed-forward: enough for its few far channels, and a hundredth of its width."""


def equalize(model: ir.Model, weights: StoredWeights, channels: Mapping[str, Channels]) -> dict[str, Range]:
    """Split and equalise what every product of an encoder reads, in place; returns the range of it by module."""
    ranges = {}
    for product in _products(model.graph):
        if _first_product(product) is not None:
            module = module_name(product.weight, weights)
            ranges[module] = _split(model.graph, product, module, channels[module], weights)
    for states, group in groupby(_products(model.graph), key=lambda product: product.left):
        sharing = list(group)
        module = module_name(sharing[0].weight, weights)
        if module not in ranges:
            ranges[module] = _equalize(model.graph, states, sharing, module, channels[module], weights)
    return ranges


def _products(graph: ir.Graph) -> list[Product]:
    return [product for node in graph if (product := as_product(node)) is not None]


def _first_product(product: Product) -> Product | None:
    """The first product of the feed-forward that `product` ends, or None where it ends none that can be split."""
    activation = product.left.producer()
    if activation is None or activation.op_type not in _ACTIVATIONS or len(product.left.uses()) > 1:
        return None
    first = produced_by(activation.inputs[0])
    return None if first is None or first.bias is None else first


def _split(graph: ir.Graph, product: Product, module: str, seen: Channels, weights: StoredWeights) -> Range:
    first = _first_product(product)
    assert first is not None
    assert first.bias is not None
    limit, copies = split_plan(seen.highs)
    if copies.any():
        sources = np.repeat(np.arange(len(copies)), copies)
        numbering = np.concatenate([np.arange(1, count + 1) for count in copies])
        offsets = (numbering * limit).astype(np.float32)
        expand = module_name(first.weight, weights)
        columns = constant(graph, f"{module}.split", sources)
        steps = constant(graph, f"{module}.offsets", offsets)
        weight = _repeat(first.node, f"{expand}.weight.split", first.weight, columns, axis=1)
        bias = _repeat(first.node, f"{expand}.bias.split", first.bias, columns, axis=0, minus=steps)
        replace_constants(first, weight, bias, expand)
        replace_constants(
            product, _repeat(product.node, f"{module}.weight.split", product.weight, columns, axis=0), None, module
        )
        for value in (first.node.outputs[0], first.result, product.left):
            assert value.shape is not None
            value.shape = ir.Shape([*value.shape[:-1], len(copies) + len(sources)])
    return _range(seen.lows, np.array([limit]))


def _range(lows: Array, highs: Array) -> Range:
    return Range(-round_up(max(0.0, -float(lows.min()))), round_up(max(0.0, float(highs.max()))))


def split_plan(highs: Array) -> tuple[float, Array]:
    """The lowest limit that `NUM_SPLITS` copies allow, and the copies of each channel, given how far each reaches."""
    parts = highs[highs > 0] / np.arange(1, NUM_SPLITS + 2)[:, None]
    limits = np.unique(np.maximum(parts, _LEAST_LIMIT))  # a limit divides some channel evenly
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        if _copies(highs, round_up(float(limits[middle]))).sum() <= NUM_SPLITS:
            high = middle
        else:
            low = middle + 1
    limit = round_up(float(limits[low])) if len(limits) else 0.0
    return limit, _copies(highs, limit)


def _copies(highs: Array, limit: float) -> Array:
    copies: Array = np.maximum(np.ceil(highs / max(limit, _LEAST_LIMIT)) - 1, 0).astype(np.int64)
    return copies


def _repeat(
    user: ir.Node, name: str, whole: ir.Value, places: ir.Value, axis: int, minus: ir.Value | None = None
) -> ir.Value:
    """`whole` with some of its rows or columns once more at its end."""
    array = numbers(whole).take(numbers(places), axis)
    again = derive(user, f"{name}.again", "Gather", [whole, places], array, {"axis": axis})
    if minus is not None:
        array = array - numbers(minus)
        again = derive(user, f"{name}.lower", "Sub", [again, minus], array)
    return derive(user, name, "Concat", [whole, again], np.concatenate([numbers(whole), array], axis), {"axis": axis})


def _equalize(
    graph: ir.Graph,
    states: ir.Value,
    sharing: Sequence[Product],
    module: str,
    seen: Channels,
    weights: StoredWeights,
) -> Range:
    """Divide the channels of `states` by factors, and multiply the rows of the weights that read them."""
    rows = np.max([np.abs(numbers(product.weight)).max(axis=1) for product in sharing], axis=0)
    factors = equalizing_factors(np.maximum(-seen.lows, seen.highs), rows)
    name = f"{module}.equalizing"
    times = constant(graph, f"{name}.rows.scale", factors[:, None])
    by = constant(graph, f"{name}.scale", 1 / factors)
    _divide(graph, states, sharing, name, by, weights)
    for product in sharing:
        array = numbers(product.weight) * factors[:, None]
        weight = derive(product.node, f"{product.weight.name}.equalized", "Mul", [product.weight, times], array)
        replace_constants(product, weight, None, module)
    return _range(seen.lows / factors, seen.highs / factors)


def equalizing_factors(reach: Array, rows: Array) -> Array:
    """The factor of each channel, given how far it reaches and how large its row of the weight is.

    Powers of two, so that nothing is rounded; their geometric mean is near one, so that the weight keeps its size.
    """
    logarithms = STRENGTH * np.log2(np.maximum(reach, 1e-3)) - (1 - STRENGTH) * np.log2(np.maximum(rows, 1e-4))
    factors: Array = np.exp2(np.round(logarithms - logarithms.mean())).astype(np.float32)
    return factors


def _divide(
    graph: ir.Graph,
    states: ir.Value,
    sharing: Sequence[Product],
    name: str,
    by: ir.Value,
    weights: StoredWeights,
) -> None:
    """Multiply `states` by `by` for the products that share it, where possible in the constants that make it."""
    source = states.producer()
    is_shared = len(states.uses()) > len(sharing)
    if source is not None and source.op_type == "Attention" and not is_shared:
        value = produced_by(source.inputs[2])
        if value is not None and value.bias is not None and len(value.result.uses()) == 1:
            _scale_columns(value, name, by, module_name(value.weight, weights))
            return
    if source is not None and source.op_type == "LayerNormalization" and not is_shared:
        for place in range(1, len(source.inputs)):
            old = source.inputs[place]
            assert old is not None
            scaled = derive(source, f"{name}.norm.{place}", "Mul", [old, by], numbers(old) * numbers(by))
            source.replace_input_with(place, scaled)
        return
    node = ir.node("Mul", [states, by], name=name)
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, states.type, states.shape
    graph.insert_before(sharing[0].node, node)
    for product in sharing:
        product.node.replace_input_with(0, node.outputs[0])


def _scale_columns(product: Product, name: str, by: ir.Value, module: str) -> None:
    assert product.bias is not None
    scaled = [
        derive(product.node, f"{name}.value.{kind}", "Mul", [old, by], numbers(old) * numbers(by))
        for kind, old in (("weight", product.weight), ("bias", product.bias))
    ]
    replace_constants(product, scaled[0], scaled[1], module)
