"""The waiting line of decoding: first come first served, in rows of the cache, shared by the loops of one engine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol, TypeVar

from service.engine import line
from service.engine.errors import RequestTooLargeError
from service.engine.line import ResultT
from service.engine.types import GenerationResult, InferenceRequest

Ticket = line.Ticket[InferenceRequest, GenerationResult]


@dataclass(frozen=True, slots=True)
class EngineLimits(line.LineLimits):
    """Bounds of one engine. Rows are cache rows: a greedy sequence takes one, a beam search `beam_size`."""

    max_rows: int = 128
    """Rows of each loop, which advance together."""
    overhead_tokens: int = 24
    """What an encoder batch costs however small it is, in tokens of computing time."""


class RowRequest(line.Request, Protocol):
    """A request that takes rows of a cache."""

    @property
    def num_rows(self) -> int:
        """Rows that it takes until it is finished."""
        ...


RowRequestT = TypeVar("RowRequestT", bound=RowRequest)


class RowLine(line.BoundedLine[RowRequestT, ResultT]):
    """Requests that wait for rows of the cache."""

    _limits: EngineLimits

    def __init__(self, limits: EngineLimits, num_loops: int, max_input_tokens: int, noun: str) -> None:
        super().__init__(limits, max_input_tokens, noun)
        self._num_loops = num_loops
        self._rows = 0
        self._active_rows = [0] * num_loops

    def _check_size(self, request: RowRequestT) -> None:
        super()._check_size(request)
        if request.num_rows > self._limits.max_rows:
            raise RequestTooLargeError(
                f"beam_size {request.num_rows} exceeds the {self._limits.max_rows} rows of one loop"
            )

    def take(self, loop: int, active_rows: int) -> list[line.Ticket[RowRequestT, ResultT]] | None:
        """The next tickets for a loop with `active_rows` rows in use; waits while there is nothing to do at all.

        A loop takes until it has its share of all rows, so that it does not hoard what its neighbour could run now.
        Late tickets come out whether there is room or not, so that their callers hear of it in time. None means: stop.
        """
        with self._changed:
            self._active_rows[loop] = active_rows
            while not self._tickets and not active_rows and not self._stopping:
                self._changed.wait()
            if not self._tickets:
                return None if self._stopping and not active_rows else []
            taken = self._take_late(time.monotonic())
            # The last ticket may exceed the share: beams are wider than one row, and somebody has to take them.
            share = -(-(self._rows + sum(self._active_rows)) // self._num_loops)
            while self._tickets and active_rows < share:
                ticket = next(iter(self._tickets))
                if active_rows + ticket.request.num_rows > self._limits.max_rows or not self._has_room(loop, ticket):
                    break
                del self._tickets[ticket]
                self._discount(ticket)
                active_rows += ticket.request.num_rows
                taken.append(ticket)
            self._active_rows[loop] = active_rows
            return taken

    def _has_room(self, loop: int, ticket: line.Ticket[RowRequestT, ResultT]) -> bool:
        """Whether the loop, which has the rows, has all else that the ticket needs; if so, it takes it now."""
        return True

    def _count(self, ticket: line.Ticket[RowRequestT, ResultT]) -> None:
        super()._count(ticket)
        self._rows += ticket.request.num_rows

    def _discount(self, ticket: line.Ticket[RowRequestT, ResultT]) -> None:
        super()._discount(ticket)
        self._rows -= ticket.request.num_rows

    def size(self) -> tuple[int, int, int]:
        """Waiting requests, waiting tokens, active rows."""
        with self._changed:
            return len(self._tickets), self._tokens, sum(self._active_rows)


class WaitingLine(RowLine[InferenceRequest, GenerationResult]):
    """Sources that wait to be translated."""

    def __init__(self, limits: EngineLimits, num_loops: int, max_source_tokens: int) -> None:
        super().__init__(limits, num_loops, max_source_tokens, "source")
