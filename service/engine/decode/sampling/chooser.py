"""The choice of one sequence's next tokens: its options, its history and its random numbers together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.engine.core.arrays import Floats
from service.engine.core.errors import NO_NUMBER, InvalidOutputError
from service.engine.decode.sampling.draw import draw, draw_among, generator_of
from service.engine.decode.sampling.filters import Filter, MinP, TopK, TopP, TypicalP
from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.sampling.penalties import (
    FrequencyPenalty,
    History,
    LogitBias,
    LogitsProcessor,
    PresencePenalty,
    RepetitionPenalty,
    Temperature,
)

Ranked = tuple[tuple[int, float], ...]
"""Tokens with their log-probabilities, best first."""


class Choice(NamedTuple):
    """A token, its log-probability, and the likeliest tokens in its place."""

    token_id: int
    log_prob: float
    top_tokens: Ranked


class TokenChooser:
    """Chooses token after token for one sequence.

    Log-probabilities are those of the whole vocabulary after bias, penalties and temperature, and before top-k and its
    like: so every token has one, also those that cannot be drawn.
    """

    def __init__(self, options: SamplingOptions, prompt: Sequence[int], top_n_tokens: int = 0) -> None:
        self._top_n_tokens = top_n_tokens
        self._processors = _processors(options)
        self._filters = _filters(options) if options.do_sample else []
        self._history = History(prompt if options.changes_logits else ())
        self._random = generator_of(options.seed) if options.do_sample else None
        self.needs_logits = options.do_sample or options.changes_logits
        """Whether `choose` is needed; else the model's own ranking decides, with `take`."""

    @property
    def num_candidates(self) -> int:
        """How many of the model's best tokens `take` needs."""
        return max(1, self._top_n_tokens)

    def take(self, ids: Sequence[int], log_probs: Sequence[float]) -> Choice:
        """Choose from the model's best tokens, in their order, where `needs_logits` is False.

        Raises InvalidOutputError, as `choose` does, where they are NaN.
        """
        if math.isnan(log_probs[0]):
            raise InvalidOutputError(NO_NUMBER)
        count = self._top_n_tokens
        return Choice(ids[0], log_probs[0], tuple(zip(ids[:count], log_probs[:count], strict=True)))

    def choose(self, logits: Floats) -> Choice:
        """Choose by the logits (V) of the next token, which are not modified."""
        for processor in self._processors:
            logits = processor(logits, self._history)
        best = int(logits.argmax())
        if not math.isfinite(logits[best]):
            raise InvalidOutputError(NO_NUMBER)
        weights = np.exp(logits - logits[best])
        log_total = float(logits[best]) + math.log(weights.sum())
        token_id = best if self._random is None else self._draw(weights, self._random)
        self._history.add(token_id)
        top_tokens = best_tokens(logits, self._top_n_tokens, log_total)
        return Choice(token_id, float(logits[token_id]) - log_total, top_tokens)

    def _draw(self, weights: Floats, random: np.random.Generator) -> int:
        if not self._filters:
            return draw(weights, random)
        kept = self._filters[0](weights)
        for keep in self._filters[1:]:
            kept = kept[keep(weights[kept])]
        return draw_among(kept, weights[kept], len(weights), random)


def best_tokens(logits: Floats, count: int, log_total: float) -> Ranked:
    """The `count` likeliest tokens, where `log_total` is the logarithm of the sum of the exponentials of `logits`."""
    if not count:
        return ()
    count = min(count, len(logits))
    places = np.argpartition(logits, -count)[-count:]
    places = places[np.lexsort((places, -logits[places]))]
    return tuple((int(place), float(logits[place]) - log_total) for place in places)


def _processors(options: SamplingOptions) -> list[LogitsProcessor]:
    chosen: list[LogitsProcessor] = []
    if options.logit_bias:
        chosen.append(LogitBias(options.logit_bias))
    if options.repetition_penalty != 1.0:
        chosen.append(RepetitionPenalty(options.repetition_penalty))
    if options.frequency_penalty:
        chosen.append(FrequencyPenalty(options.frequency_penalty))
    if options.presence_penalty:
        chosen.append(PresencePenalty(options.presence_penalty))
    if options.do_sample and options.temperature != 1.0:
        chosen.append(Temperature(options.temperature))
    return chosen


def _filters(options: SamplingOptions) -> list[Filter]:
    chosen: list[Filter] = []
    if options.top_k:
        chosen.append(TopK(options.top_k))
    if options.top_p < 1.0:
        chosen.append(TopP(options.top_p))
    if options.min_p:
        chosen.append(MinP(options.min_p))
    if options.typical_p < 1.0:
        chosen.append(TypicalP(options.typical_p))
    return chosen
