"""Whose work it is. Clients take turns, and so do the requests of each; see docs/decisions/0161-fair-turns.md."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Flow:
    """One request of a client, with all that it asks of an engine, one after the other or at once.

    `tokens` and `finish` are the engine's own notes, by line: the tokens that the request has asked for so far, and
    the virtual time at which its next ones may begin.
    """

    client: str
    tokens: dict[object, int] = field(default_factory=dict)
    finish: dict[object, float] = field(default_factory=dict)


_current: ContextVar[Flow | None] = ContextVar("flow", default=None)


def begin_flow(client: str) -> None:
    """All that the current task asks of engines from now on is one request of `client`."""
    _current.set(Flow(client))


def current_flow() -> Flow:
    """The request that the current task works for; a new one, of a client without a name, where nobody has said."""
    return _current.get() or Flow("")
