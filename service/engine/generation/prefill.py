"""Which prompts run together, and how much of them: pure functions over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Pending(NamedTuple):
    """What is left of a prompt: `remaining` tokens, which begin at `position`."""

    position: int
    remaining: int


class Group(NamedTuple):
    """The prompts that run together, as places in what was pending, and the most tokens of each."""

    members: tuple[int, ...]
    num_tokens: int


def choose_group(pending: Sequence[Pending], max_tokens: int, max_position: int) -> Group:
    """The first of `pending`, cut to `max_tokens`, and those after it that are about as long.

    Tokens with their padding, longest x count, stay within `max_tokens`, and no row's padding goes beyond
    `max_position`. A prompt that is cut runs alone, so that at most one is ever half done.
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
