"""Statistics of an engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of one engine. `steps` and `generated_tokens` count from its start; the rest is of the moment."""

    waiting_requests: int
    waiting_tokens: int
    active_rows: int
    max_rows: int
    steps: int
    generated_tokens: int
    padding_share: float
    is_alive: bool = True


@dataclass(slots=True)
class WorkCounts:
    """Counters of one thread of an engine; written by that thread alone.

    `num_tokens` are real tokens of inputs that were read, `num_padded_tokens` the padding computed beside them.
    """

    num_steps: int = 0
    num_generated_tokens: int = 0
    num_tokens: int = 0
    num_padded_tokens: int = 0

    @classmethod
    def total(cls, counts: Iterable[WorkCounts]) -> WorkCounts:
        """The sums over all threads."""
        total = cls()
        for each in counts:
            total.num_steps += each.num_steps
            total.num_generated_tokens += each.num_generated_tokens
            total.num_tokens += each.num_tokens
            total.num_padded_tokens += each.num_padded_tokens
        return total

    @property
    def padding_share(self) -> float:
        """Padding as a share of all tokens computed of inputs, 0 to 1."""
        return self.num_padded_tokens / (self.num_padded_tokens + self.num_tokens) if self.num_padded_tokens else 0.0
