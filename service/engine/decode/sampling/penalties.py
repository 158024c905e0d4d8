"""What changes logits before anything is chosen: bias, penalties, temperature. Each returns a new row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from service.engine.core.arrays import Floats, Ids


class History:
    """The tokens of one sequence so far: those of prompt and output, and how often the output has each of its own."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._seen = set(prompt)
        self._counts: dict[int, int] = {}

    def add(self, token_id: int) -> None:
        """One more token of output."""
        self._seen.add(token_id)
        self._counts[token_id] = self._counts.get(token_id, 0) + 1

    @property
    def seen(self) -> Ids:
        """Every token of prompt and output, once."""
        return np.fromiter(self._seen, np.int64, len(self._seen))

    @property
    def generated(self) -> Ids:
        """Every token of the output, once."""
        return np.fromiter(self._counts, np.int64, len(self._counts))

    @property
    def counts(self) -> Floats:
        """How often the output has each of `generated`."""
        return np.fromiter(self._counts.values(), np.float32, len(self._counts))


class LogitsProcessor(Protocol):
    """A change of one row's logits (V) that depends on nothing but them and what has been written."""

    def __call__(self, logits: Floats, history: History) -> Floats: ...


class LogitBias:
    """Adds a number to the logits of given tokens."""

    def __init__(self, biases: Sequence[tuple[int, float]]) -> None:
        summed: dict[int, float] = {}
        for token_id, bias in biases:
            summed[token_id] = summed.get(token_id, 0.0) + bias
        self._ids = np.fromiter(summed, np.int64, len(summed))
        self._biases = np.fromiter(summed.values(), np.float32, len(summed))

    def __call__(self, logits: Floats, history: History) -> Floats:
        changed = logits.copy()
        changed[self._ids] += self._biases
        return changed


class RepetitionPenalty:
    """Divides the positive logits of tokens that occurred by `penalty`, and multiplies the negative ones.

    Section 4.1 of Keskar et al. 2019, https://arxiv.org/abs/1909.05858, for logits of both signs.
    """

    def __init__(self, penalty: float) -> None:
        self._penalty = penalty

    def __call__(self, logits: Floats, history: History) -> Floats:
        changed, ids = logits.copy(), history.seen
        seen = logits[ids]
        changed[ids] = np.where(seen > 0, seen / self._penalty, seen * self._penalty)
        return changed


class FrequencyPenalty:
    """Subtracts `penalty` for each time that the output has the token.

    OpenAI's definition: https://platform.openai.com/docs/advanced-usage.
    """

    def __init__(self, penalty: float) -> None:
        self._penalty = penalty

    def __call__(self, logits: Floats, history: History) -> Floats:
        changed = logits.copy()
        changed[history.generated] -= np.float32(self._penalty) * history.counts
        return changed


class PresencePenalty:
    """Subtracts `penalty` once if the output has the token; OpenAI's definition as well."""

    def __init__(self, penalty: float) -> None:
        self._penalty = penalty

    def __call__(self, logits: Floats, history: History) -> Floats:
        changed = logits.copy()
        changed[history.generated] -= self._penalty
        return changed


class Temperature:
    """Divides the logits: below 1 the likely tokens become likelier, above 1 they become more alike."""

    _LEAST = 1e-6
    """What float32 can divide by; everything below it is greedy all the same."""

    def __init__(self, temperature: float) -> None:
        self._temperature = max(temperature, self._LEAST)

    def __call__(self, logits: Floats, history: History) -> Floats:
        divided: Floats = (logits - logits.max()) / np.float32(self._temperature)
        return divided
