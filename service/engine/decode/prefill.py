"""Which prompts are prefilled next, how many of their tokens, and which prefixes are reused.

Plain functions over the sequences that wait for prefill.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import NamedTuple

from service.engine.decode.backend import SavedRow
from service.engine.decode.prefix import LEAST_REUSE, PrefixPool, shared_length
from service.engine.decode.sequence import Sequence

WINDOW = 32
"""How many of the oldest prompts are considered; a call seldom has room for more."""


class Pending(NamedTuple):
    """What is left of a prompt: `remaining` tokens, which begin at `position`."""

    position: int
    remaining: int


class Group(NamedTuple):
    """The prompts that run together, as indices into those pending, and the most tokens of each."""

    members: tuple[int, ...]
    num_tokens: int


class Beginning(NamedTuple):
    """A prompt, and how many of its first tokens are cached: in `source`, a live sequence or a kept row, or its own."""

    sequence: Sequence
    num_shared: int
    source: Sequence | SavedRow | None

    @property
    def pending(self) -> Pending:
        """What is left to read."""
        return Pending(self.num_shared, self.sequence.num_prompt_tokens - self.num_shared)


def plan_beginnings(waiting: Seq[Sequence], live: Seq[Sequence], pool: PrefixPool) -> list[Beginning]:
    """The prompts that can run, oldest first, each with the prefix that it reuses.

    One that shares more with an older prompt of the list than with any row there is waits for that one's prefill.
    """
    found: list[Beginning] = []
    for sequence in waiting[:WINDOW]:
        beginning = _beginning(sequence, live, pool)
        before = (shared_length(sequence.prompt, other.sequence.prompt) for other in found)
        if sequence.batch or max(before, default=0) < beginning.num_shared + LEAST_REUSE:
            found.append(beginning)
    return found


def _beginning(sequence: Sequence, live: Seq[Sequence], pool: PrefixPool) -> Beginning:
    if sequence.batch:
        return Beginning(sequence, sequence.position, None)
    # The last token is read in any case, since the next token follows from its output.
    limit = sequence.num_prompt_tokens - 1
    best = Beginning(sequence, 0, None)
    if limit < LEAST_REUSE:
        return best
    for other in live:
        length = min(shared_length(sequence.prompt, other.prompt), other.position, limit)
        if length > best.num_shared and length >= LEAST_REUSE:
            best = Beginning(sequence, length, other)
    kept = pool.find(sequence.prompt)
    if kept is not None and min(kept.length, limit) > best.num_shared:
        best = Beginning(sequence, min(kept.length, limit), kept.row)
    return best


def choose_group(pending: Seq[Pending], max_tokens: int, max_position: int) -> Group:
    """The first of `pending`, cut to `max_tokens`, and those after it that are about as long.

    Tokens with their padding, longest x count, stay within `max_tokens`, and no row's padding goes beyond
    `max_position`. A prompt that is cut runs alone, so that at most one is ever in the middle of its prefill.
    """
    first = pending[0]
    longest = min(first.remaining, max_tokens)
    # Padding costs as much as tokens do; a call of its own costs about as much as some tokens.
    slack = max(16, longest // 4)
    shortest, longest_allowed = longest - slack, longest + slack
    members, furthest = [0], first.position
    for place, prompt in enumerate(pending[1:], start=1):
        if not shortest <= prompt.remaining <= longest_allowed:
            continue
        wider, further = max(longest, prompt.remaining), max(furthest, prompt.position)
        if wider * (len(members) + 1) <= max_tokens and further + wider <= max_position:
            longest, furthest = wider, further
            members.append(place)
    return Group(tuple(members), longest)
