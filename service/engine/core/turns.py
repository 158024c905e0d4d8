"""Who is next: start-time fair queueing over clients, and over the requests of each.

Goyal, Vin and Cheng 1996, https://doi.org/10.1109/90.649569: each piece of work begins at a virtual time, that of the
piece before it in the same queue plus its cost, or now if that is later; the earliest goes first. A queue that was
empty has no credit from that time, and one that is never empty waits no longer than for a piece of each other.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from service.engine.core.flow import Flow


class Piece(Protocol):
    """Work of a flow. `start` is its virtual time among the pieces of its client, given when it is added."""

    flow: Flow
    start: float

    @property
    def cost(self) -> int: ...


PieceT = TypeVar("PieceT", bound=Piece)

_start = attrgetter("start")
_LEAST_TO_CLEAN = 64


@dataclass(eq=False, slots=True)
class _Client(Generic[PieceT]):
    """What waits of one client, the earliest start first; `start` is that of its next piece among all clients."""

    start: float
    virtual: float
    pieces: list[PieceT] = field(default_factory=list)
    first: int = 0
    """The place of the first piece that may still wait."""

    def add(self, piece: PieceT) -> None:
        pieces = self.pieces
        if not pieces or piece.start >= pieces[-1].start:  # as nearly always
            pieces.append(piece)
        else:
            insort(pieces, piece, self.first, key=_start)

    def forget(self, is_waiting: Callable[[PieceT], bool]) -> None:
        self.pieces = [piece for piece in self.pieces[self.first :] if is_waiting(piece)]
        self.first = 0


class Turns(Generic[PieceT]):
    """The order of the pieces that wait. A piece leaves by `is_waiting` saying so; nothing is searched for it."""

    def __init__(self, is_waiting: Callable[[PieceT], bool]) -> None:
        self._is_waiting = is_waiting
        self._clients: dict[str, _Client[PieceT]] = {}
        self._heap: list[tuple[float, int, str]] = []  # each client's start, perhaps an earlier one, and a number
        self._number = 0
        self._now = 0.0
        self._latest = 0.0  # no piece that was taken began later among those of its client

    def add(self, flow: Flow, pieces: Sequence[PieceT]) -> None:
        """Queue pieces of one flow, which keep their order."""
        client = self._clients.get(flow.client)
        if client is None:
            client = self._clients[flow.client] = _Client(self._now, self._latest)
            self._number += 1
            heapq.heappush(self._heap, (self._now, self._number, flow.client))
        elif len(client.pieces) > _LEAST_TO_CLEAN and client.first > len(client.pieces) // 2:
            client.forget(self._is_waiting)
        start = max(client.virtual, flow.finish.get(self, 0.0))
        for piece in pieces:
            piece.start = start
            start += piece.cost
            client.add(piece)
        flow.finish[self] = start

    def next(self) -> PieceT | None:
        """Whose turn it is, which stays so until it is taken or another comes."""
        while self._heap:
            start, number, name = self._heap[0]
            client = self._clients[name]
            if client.start > start:
                heapq.heapreplace(self._heap, (client.start, number, name))
                continue
            pieces = client.pieces
            while client.first < len(pieces):
                if self._is_waiting(pieces[client.first]):
                    return pieces[client.first]
                client.first += 1
            heapq.heappop(self._heap)
            del self._clients[name]
        return None

    def window(self, count: int) -> list[PieceT]:
        """At least the one whose turn it is, then more that wait, at most `count`: of its client, then of others."""
        if self.next() is None:
            return []
        found: list[PieceT] = []
        for name in [name for _, _, name in heapq.nsmallest(count, self._heap)]:
            client = self._clients[name]
            client.forget(self._is_waiting)
            found += client.pieces[: count - len(found)]
            if len(found) >= count:
                break
        return found

    def take(self, pieces: Iterable[PieceT]) -> None:
        """These have their turn now, and their clients pay for it."""
        for piece in pieces:
            client = self._clients[piece.flow.client]
            self._now = max(self._now, client.start)
            client.start += piece.cost
            client.virtual = max(client.virtual, piece.start)
            self._latest = max(self._latest, piece.start)
