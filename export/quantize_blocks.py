"""int4: every product with a weight becomes one with 4-bit integers, in blocks that have a scale each.

A step of few rows waits for the weights to come from memory, and these are an eighth of float32. ONNX Runtime's
MatMulNBits unpacks them as it multiplies, and rounds what enters to 8 bits by the row and block, so a row does not
depend on other rows and nothing has to be measured beforehand. No session can fold a constant into its form, so
packed weights are stored, and what they were made of is not. See docs/decisions/0015-int4-blocks.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from export.derived import Product, as_product, constant, module_name, numbers, replace_product, weight_name
from export.quantize import MICROSOFT
from export.weights import StoredWeights

BLOCK_SIZE = 128
"""Weights of an output channel that share a scale: what GPTQ and AWQ take, and twice as fast as the usual 32 is."""

ROUND_INPUTS_TO_8_BITS = 4
"""The operator's `accuracy_level` at which it multiplies integers."""

_BITS = 4
_LOWEST, _HIGHEST = -8, 7


class Blocks(NamedTuple):
    """A matrix (K,N): two weights a byte (N, blocks, bytes), the earlier one lower, and scales (N, blocks).

    A weight is its half of the byte less 8, times its block's scale.
    """

    packed: NDArray[np.uint8]
    scales: NDArray[np.float32]


def quantize_blocks(model: ir.Model, weights: StoredWeights) -> set[str]:
    """Turn every float32 product with a constant matrix in `model` into an int4 one, in place.

    Returns the names of the weights that were packed. They are still in memory: `export.weights.bind_weights` comes
    after this.
    """
    graph = model.graph
    model.opset_imports[MICROSOFT] = 1
    constants: dict[tuple[str, bool], tuple[ir.Value, ir.Value]] = {}
    packed = set[str]()
    for node in list(graph):
        product = as_product(node)
        if product is None:
            continue
        name = weight_name(product.weight, weights)
        packed.add(f"{module_name(product.weight, weights)}.weight")
        key = (name, product.is_transposed)
        if key not in constants:
            constants[key] = _constants(graph, product, name)
        _substitute(graph, product, *constants[key])
    RemoveUnusedNodesPass()(model)
    return packed


def to_blocks(weight: NDArray[np.float32]) -> Blocks:
    """The int4 form of a matrix (K,N); the last block of a channel is filled up with zeros."""
    channels = np.pad(weight.T, ((0, 0), (0, -len(weight) % BLOCK_SIZE)))
    blocks = channels.reshape(len(channels), -1, BLOCK_SIZE)
    scales = _scales(blocks)
    steps = np.clip(np.rint(blocks / scales), _LOWEST, _HIGHEST)
    halves = (steps - _LOWEST).astype(np.uint8)
    return Blocks(halves[..., 0::2] | halves[..., 1::2] << _BITS, scales[..., 0])


def _scales(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    """The scale (..., 1) of each block (..., K).

    There is one more step below zero than above, so the weight that is furthest from zero is given the lowest one
    whatever its sign is, and the scale becomes negative where it is positive.
    """
    places = np.abs(blocks).argmax(axis=-1, keepdims=True)
    scales = np.take_along_axis(blocks, places, axis=-1) / np.float32(_LOWEST)
    # A block of zeros keeps a scale that can be divided by.
    return np.where(scales == 0, np.float32(1), scales)


def _constants(graph: ir.Graph, product: Product, name: str) -> tuple[ir.Value, ir.Value]:
    blocks = to_blocks(_matrix(product))
    return constant(graph, f"{name}.int4", blocks.packed), constant(graph, f"{name}.int4.scale", blocks.scales)


def _substitute(graph: ir.Graph, product: Product, packed: ir.Value, scales: ir.Value) -> None:
    """Put one MatMulNBits in the place of the product and its bias."""
    num_inputs, num_outputs = _matrix(product).shape
    attributes = {
        "K": num_inputs,
        "N": num_outputs,
        "bits": _BITS,
        "block_size": BLOCK_SIZE,
        "accuracy_level": ROUND_INPUTS_TO_8_BITS,
    }
    inputs = [product.left, packed, scales, None, None, product.bias]
    name = f"{product.node.name}.int4"
    replace_product(graph, product, ir.node("MatMulNBits", inputs, attributes=attributes, domain=MICROSOFT, name=name))


def _matrix(product: Product) -> NDArray[np.float32]:
    """The weight (K,N)."""
    weight = numbers(product.weight)
    return weight.T if product.is_transposed else weight
