"""How prompts that wait can begin: with what other rows already know of them."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import NamedTuple

from service.engine.generation.backend import SavedRow
from service.engine.generation.prefill import Pending
from service.engine.generation.prefix import LEAST_REUSE, PrefixPool, shared_length
from service.engine.generation.sequence import Row, Sequence

WINDOW = 32
"""How many of the oldest prompts are looked at; a call seldom has room for more."""


class Beginning(NamedTuple):
    """A prompt, and how many of its tokens a live or a kept row has: that row, or its own where it has begun."""

    sequence: Sequence
    num_shared: int
    source: Row | SavedRow | None

    @property
    def pending(self) -> Pending:
        """What is left to read."""
        return Pending(self.num_shared, self.sequence.num_prompt_tokens - self.num_shared)


def plan_beginnings(waiting: Seq[Sequence], live: Seq[Sequence], pool: PrefixPool) -> list[Beginning]:
    """How those that wait can begin, the oldest first.

    One that has more in common with a prompt before it than with any row there is stays out until that has been read.
    """
    found: list[Beginning] = []
    for sequence in waiting[:WINDOW]:
        beginning = _beginning(sequence, live, pool)
        before = (shared_length(sequence.prompt, other.sequence.prompt) for other in found)
        if sequence.rows or max(before, default=0) < beginning.num_shared + LEAST_REUSE:
            found.append(beginning)
    return found


def _beginning(sequence: Sequence, live: Seq[Sequence], pool: PrefixPool) -> Beginning:
    if sequence.rows:
        return Beginning(sequence, sequence.position, None)
    # The last token is read in any case, because what comes next is told of a token that is read.
    limit = sequence.num_prompt_tokens - 1
    best = Beginning(sequence, 0, None)
    if limit < LEAST_REUSE:
        return best
    for other in live:
        length = min(shared_length(sequence.prompt, other.prompt), other.position, limit)
        if length > best.num_shared and length >= LEAST_REUSE:
            best = Beginning(sequence, length, other.rows[0])
    kept = pool.find(sequence.prompt)
    if kept is not None and min(kept.length, limit) > best.num_shared:
        best = Beginning(sequence, min(kept.length, limit), kept.row)
    return best
