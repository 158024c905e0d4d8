"""Many maps as fewer: over the heads of a layer, or over all layers below one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Aggregate = Literal["none", "mean", "max", "rollout"]

Map = NDArray[np.float32]

_ROW_TOLERANCE = 1e-3


def over_heads(heads: Map, how: Literal["none", "mean", "max"]) -> Map:
    """The maps (H,Q,K) of a layer as they are, or one (1,Q,K) of all heads: their mean, or the largest weight.

    Rows of a mean sum to one as those of the heads do; rows of a maximum sum to at least one, and up to H.
    """
    if how == "none":
        return heads
    combined: Map = heads.mean(0, keepdims=True) if how == "mean" else heads.max(0, keepdims=True)
    return combined


def rollout(layers: Mapping[int, Map], wanted: Sequence[int]) -> dict[int, Map]:
    """How much of each input token reaches each position of the `wanted` layers, (1,T,T): attention rollout.

    Abnar and Zuidema 2020, https://arxiv.org/abs/2005.00928: heads are averaged; half of a position's state is what it
    was before the layer, by the residual connection, so A = 0.5 W + 0.5 I; and layers multiply from the input on. Rows
    sum to one. `layers` has the self-attention (H,T,T) of every layer up to the last one wanted, of an encoder or of a
    causal decoder, whose products stay causal.
    """
    flow: NDArray[np.float64] | None = None
    found: dict[int, Map] = {}
    for layer in range(max(wanted) + 1):
        weights = layers[layer].mean(0, dtype=np.float64)
        mixed = 0.5 * weights + 0.5 * np.eye(len(weights))
        mixed /= mixed.sum(-1, keepdims=True)
        flow = mixed if flow is None else mixed @ flow
        if layer in wanted:
            found[layer] = flow[None].astype(np.float32)
    return found


def row_fault(weights: Map) -> str | None:
    """What is wrong with maps (...,Q,K) whose rows should sum to one; None where nothing is."""
    if not np.isfinite(weights).all():
        return "a weight is not a finite number"
    if weights.size and weights.min() < -_ROW_TOLERANCE:
        return f"a weight is {weights.min():g}, below zero"
    worst = float(np.abs(weights.sum(-1) - 1).max(initial=0.0))
    return f"a row differs from the sum of one by {worst:g}" if worst > _ROW_TOLERANCE else None
