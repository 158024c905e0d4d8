"""What may be drawn at all: each filter takes the weights of M tokens and returns the places of those that it keeps.

A weight is a probability beside that of the likeliest token, whose weight is 1. Tokens that are exactly as good as the
last one kept are kept too, so that the order of the vocabulary decides nothing. At least one token is always kept.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from service.engine.core.arrays import Floats, Ids

_FLOORS = (2.0**-10, 2.0**-14, 0.0)
"""The tokens above one of these weights are mostly all that matter: then the rest need not be sorted."""


class Filter(Protocol):
    """Keeps some of M tokens."""

    def __call__(self, weights: Floats) -> Ids:
        """`weights` (M) -> the places of the tokens kept, in ascending order."""
        ...


class TopK:
    """The k likeliest tokens (Fan et al. 2018, https://arxiv.org/abs/1805.04833)."""

    def __init__(self, k: int) -> None:
        self._k = k

    def __call__(self, weights: Floats) -> Ids:
        if self._k >= len(weights):
            return np.arange(len(weights))
        for floor in _FLOORS:
            places = np.flatnonzero(weights >= floor)
            if len(places) >= self._k:
                break
        head = weights[places]
        kept: Ids = places[head >= np.partition(head, -self._k)[-self._k]]
        return kept


class TopP:
    """The fewest tokens whose probabilities sum to `mass` (nucleus sampling, Holtzman et al. 2020).

    https://arxiv.org/abs/1904.09751
    """

    def __init__(self, mass: float) -> None:
        self._mass = mass

    def __call__(self, weights: Floats) -> Ids:
        wanted = self._mass * float(weights.sum())
        for floor in _FLOORS:
            places = np.flatnonzero(weights >= floor)
            descending = np.sort(weights[places])[::-1]
            sums = descending.cumsum(dtype=np.float64)
            if sums[-1] >= wanted:
                break
        last = min(int(np.searchsorted(sums, wanted)), len(sums) - 1)
        kept: Ids = places[weights[places] >= descending[last]]
        return kept


class MinP:
    """The tokens at least `share` as likely as the likeliest (Nguyen et al. 2024, https://arxiv.org/abs/2407.01082)."""

    def __init__(self, share: float) -> None:
        self._share = share

    def __call__(self, weights: Floats) -> Ids:
        return np.flatnonzero(weights >= self._share)


class TypicalP:
    """The tokens whose surprise is nearest to the expected one, as many as sum to `mass`.

    Locally typical sampling, Meister et al. 2023, https://arxiv.org/abs/2202.00666.
    """

    def __init__(self, mass: float) -> None:
        self._mass = mass

    def __call__(self, weights: Floats) -> Ids:
        possible = np.flatnonzero(weights)
        weights = weights[possible]
        total = float(weights.sum(dtype=np.float64))
        log_probs = np.log(weights) - np.float32(np.log(total))
        entropy = -float((weights * log_probs).sum(dtype=np.float64)) / total
        distances = np.abs(-log_probs - np.float32(entropy))
        order = _argsort(distances)
        last = int(np.searchsorted(weights[order].cumsum(dtype=np.float64), self._mass * total))
        kept: Ids = possible[distances <= distances[order[min(last, len(order) - 1)]]]
        return kept


def _argsort(values: Floats) -> Ids:
    """`np.argsort` of float32 numbers that are not negative, several times as fast.

    Numbers sort faster than places, and the bits of such numbers sort as they do: so each place is packed behind its
    number.
    """
    packed = (values.view(np.uint32).astype(np.uint64) << np.uint64(32)) | np.arange(len(values), dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
