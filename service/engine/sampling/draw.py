"""Drawing one token by its weight, so that rounding hardly ever decides."""

from __future__ import annotations

import numpy as np

from service.engine.backend import Floats

_BLOCK = 256
_MASK = 2**64 - 1


def generator_of(seed: int | None) -> np.random.Generator:
    """The random numbers of one sequence; those of a seed are the same for ever, those of None are new each time."""
    return np.random.Generator(np.random.PCG64(None if seed is None else seed & _MASK))


def draw(weights: Floats, random: np.random.Generator) -> int:
    """The place of one of `weights` (V, at least 0, not all 0), each as likely as its share of their sum.

    The logits of a row differ in their last bits with what else is in the batch. Inverting the cumulative distribution
    would let such a difference, summed over the vocabulary, move the draw to a neighbour. A race does not: the place
    with the least E/w wins, where E are independent exponential variables (the Gumbel-max trick, Maddison et al. 2014,
    https://arxiv.org/abs/1411.0030), and only two that arrive together to the last bits can be mistaken. It is run
    twice, among blocks of the vocabulary and inside the winner, so that a step draws hundreds of numbers, not V.
    """
    num_blocks = -(-len(weights) // _BLOCK)
    starts = np.arange(0, len(weights), _BLOCK)
    block_times, times = random.standard_exponential(num_blocks), random.standard_exponential(_BLOCK)
    first = _BLOCK * _first_to_arrive(block_times, np.add.reduceat(weights, starts))
    inside = weights[first : first + _BLOCK]
    return first + _first_to_arrive(times[: len(inside)], inside)


def _first_to_arrive(times: np.ndarray[tuple[int], np.dtype[np.float64]], rates: Floats) -> int:
    with np.errstate(divide="ignore"):
        arrivals = np.where(rates > 0, times / rates, np.inf)
    return int(arrivals.argmin())
