"""What may be drawn at all: each filter takes the logits of M tokens and returns the places of those that it keeps.

Tokens that are exactly as good as the last one kept are kept too, so that the order of the vocabulary decides nothing.
At least one token is always kept.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from service.engine.backend import Floats, Ids

_LEAST_LOG_PROB = -1e30


class Filter(Protocol):
    """Keeps some of M tokens."""

    def __call__(self, logits: Floats) -> Ids:
        """`logits` (M) -> the places of the tokens kept, in ascending order."""
        ...


class TopK:
    """The k likeliest tokens (Fan et al. 2018, https://arxiv.org/abs/1805.04833)."""

    def __init__(self, k: int) -> None:
        self._k = k

    def __call__(self, logits: Floats) -> Ids:
        if self._k >= len(logits):
            return np.arange(len(logits))
        return np.flatnonzero(logits >= np.partition(logits, -self._k)[-self._k])


class TopP:
    """The fewest tokens whose probabilities sum to `mass` (nucleus sampling, Holtzman et al. 2020).

    https://arxiv.org/abs/1904.09751
    """

    _FLOORS = (2.0**-10, 2.0**-14, 0.0)
    """Tokens at least so likely, beside the likeliest, mostly hold the mass: then the rest need not be sorted."""

    def __init__(self, mass: float) -> None:
        self._mass = mass

    def __call__(self, logits: Floats) -> Ids:
        weights = _weights(logits)
        wanted = self._mass * float(weights.sum(dtype=np.float64))
        for floor in self._FLOORS:
            head = weights[weights >= floor]
            if head.sum(dtype=np.float64) >= wanted:
                break
        descending = np.sort(head)[::-1]
        last = int(np.searchsorted(descending.cumsum(dtype=np.float64), wanted))
        return np.flatnonzero(weights >= descending[min(last, len(descending) - 1)])


class MinP:
    """The tokens at least `share` as likely as the likeliest (Nguyen et al. 2024, https://arxiv.org/abs/2407.01082)."""

    def __init__(self, share: float) -> None:
        self._share = share

    def __call__(self, logits: Floats) -> Ids:
        return np.flatnonzero(_weights(logits) >= self._share)


class TypicalP:
    """The tokens whose surprise is nearest to the expected one, as many as sum to `mass`.

    Locally typical sampling, Meister et al. 2023, https://arxiv.org/abs/2202.00666.
    """

    def __init__(self, mass: float) -> None:
        self._mass = mass

    def __call__(self, logits: Floats) -> Ids:
        weights = _weights(logits)
        total = float(weights.sum(dtype=np.float64))
        # The infinite surprise of an impossible token, times its probability of 0, would be no number.
        log_probs = np.maximum(logits - logits.max() - np.float32(np.log(total)), np.float32(_LEAST_LOG_PROB))
        entropy = -float((weights * log_probs).sum(dtype=np.float64)) / total
        distances = np.abs(-log_probs - np.float32(entropy))
        order = _argsort(distances)
        last = int(np.searchsorted(weights[order].cumsum(dtype=np.float64), self._mass * total))
        return np.flatnonzero(distances <= distances[order[min(last, len(order) - 1)]])


def _weights(logits: Floats) -> Floats:
    """Probabilities beside that of the likeliest token, which is 1."""
    weights: Floats = np.exp(logits - logits.max())
    return weights


def _argsort(values: Floats) -> Ids:
    """`np.argsort` of float32 numbers that are not negative, several times as fast.

    Numbers sort faster than places, and the bits of such numbers sort as they do: so each place is packed behind its
    number.
    """
    packed = (values.view(np.uint32).astype(np.uint64) << np.uint64(32)) | np.arange(len(values), dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
