"""Which tokens must not come next: suppressed ones, and those that would repeat an n-gram."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from service.engine.core.arrays import Floats
from service.engine.core.errors import NO_NUMBER, InvalidOutputError
from service.engine.decode.types import DecodingOptions

Ranked = tuple[list[int], list[float]]
"""Token ids and their log-probabilities, best first."""


class Restrictions:
    """The tokens that the options of one request forbid, given its prompt."""

    def __init__(self, options: DecodingOptions, prompt: Sequence[int]) -> None:
        self._always = frozenset(options.suppressed_ids)
        self._at_first = self._always | frozenset(options.first_suppressed_ids)
        self._size = options.no_repeat_ngram_size
        self._sequences = options.suppressed_sequences
        self._prompt = tuple(prompt)

    @property
    def most_banned(self) -> int | None:
        """An upper bound on the forbidden tokens of a step; None where there is none."""
        return None if self._size else len(self._at_first) + len(self._sequences)

    def banned(self, history: Sequence[int]) -> frozenset[int]:
        """The tokens that must not follow the new tokens `history`."""
        fixed = self._always if history else self._at_first
        if not (self._size or self._sequences):
            return fixed
        tokens = (*self._prompt, *history)
        ends = {end for *begin, end in self._sequences if tokens[len(tokens) - len(begin) :] == tuple(begin)}
        return fixed | ends | (self._repeats(tokens) if self._size else frozenset())

    def _repeats(self, tokens: tuple[int, ...]) -> frozenset[int]:
        """The tokens that would complete an n-gram that `tokens` already hold."""
        before = self._size - 1
        last = tokens[len(tokens) - before :]
        return frozenset(
            tokens[place + before] for place in range(len(tokens) - before) if tokens[place : place + before] == last
        )


def masked(logits: Floats, banned: Collection[int]) -> Floats:
    """A copy of `logits` (V) in which those of `banned` are minus infinity; `logits` itself where nothing is banned."""
    if not banned:
        return logits
    logits = logits.copy()
    logits[list(banned)] = -np.inf
    return logits


def without(banned: frozenset[int], ids: Sequence[int], log_probs: Sequence[float]) -> Ranked:
    """The candidates that are not `banned`, in their order."""
    kept = [(token, log_prob) for token, log_prob in zip(ids, log_probs, strict=True) if token not in banned]
    return [token for token, _ in kept], [log_prob for _, log_prob in kept]


def best_without(banned: frozenset[int], logits: Floats, count: int) -> Ranked:
    """The best `count` tokens that are not `banned`, by their log-probabilities among all tokens of `logits` (V).

    Raises InvalidOutputError where these are NaN.
    """
    highest = float(logits.max())
    if not math.isfinite(highest):
        raise InvalidOutputError(NO_NUMBER)
    log_total = highest + math.log(float(np.exp(logits - highest, dtype=np.float64).sum()))
    allowed = logits.astype(np.float64)
    allowed[list(banned)] = -np.inf
    count = min(count, len(logits) - len(banned))
    places = np.argpartition(allowed, -count)[-count:]
    places = places[np.lexsort((places, -allowed[places]))]
    return places.tolist(), (allowed[places] - log_total).tolist()
