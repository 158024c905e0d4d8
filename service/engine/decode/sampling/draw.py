"""Drawing one token by its weight, so that rounding hardly ever decides."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.engine.core.arrays import Floats, Ids

Doubles = NDArray[np.float64]

_BLOCK = 256
_MASK = 2**64 - 1


def generator_of(seed: int | None) -> np.random.Generator:
    """The random numbers of one sequence: reproducible for a seed, new each time for None."""
    return np.random.Generator(np.random.PCG64(None if seed is None else seed & _MASK))


def draw(weights: Floats, random: np.random.Generator) -> int:
    """The place of one of `weights` (V, at least 0, not all 0), each as likely as its share of their sum.

    The logits of a row differ in their last bits with what else is in the batch. Inverting the cumulative distribution
    would let such a difference, summed over the vocabulary, move the draw to an adjacent token. The exponential race
    does not: the place with the least E/w wins, where E are independent exponential variables (the Gumbel-max trick,
    Maddison et al. 2014, https://arxiv.org/abs/1411.0030), and only a tie to the last bits can be decided otherwise.
    It is run twice, among blocks of the vocabulary and inside the winning block, so that a step draws hundreds of
    random numbers and not V.
    """
    size = len(weights)
    num_whole = size // _BLOCK
    sums = weights[: num_whole * _BLOCK].reshape(num_whole, _BLOCK).sum(axis=1)
    if size % _BLOCK:
        sums = np.append(sums, weights[num_whole * _BLOCK :].sum())
    block_times, times = _times(size, random)
    first = _BLOCK * _first_to_arrive(block_times, sums)
    inside = weights[first : first + _BLOCK]
    return first + _first_to_arrive(times[: len(inside)], inside)


def draw_among(places: Ids, weights: Floats, size: int, random: np.random.Generator) -> int:
    """As `draw`, where only the tokens at `places` (M, ascending) of `size` have weights (M) other than 0.

    The same numbers lead to the same place, so that it does not matter which of the two is asked.
    """
    block_times, times = _times(size, random)
    blocks = places // _BLOCK
    sums: Doubles = np.bincount(blocks, weights, len(block_times)).astype(np.float64, copy=False)
    block = _first_to_arrive(block_times, sums)
    inside = slice(*np.searchsorted(blocks, (block, block + 1)))
    return int(places[inside][_first_to_arrive(times[places[inside] % _BLOCK], weights[inside])])


def _times(size: int, random: np.random.Generator) -> tuple[Doubles, Doubles]:
    return random.standard_exponential(-(-size // _BLOCK)), random.standard_exponential(_BLOCK)


def _first_to_arrive(times: Doubles, rates: Floats | Doubles) -> int:
    with np.errstate(divide="ignore"):
        arrivals = np.where(rates > 0, times / rates, np.inf)
    return int(arrivals.argmin())
