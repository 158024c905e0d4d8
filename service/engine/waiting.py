"""The waiting line: bounded, first come first served, shared by the loops of one engine."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from service.engine.errors import ModelUnavailableError, OverloadedError, RequestTooLargeError
from service.engine.types import GenerationResult, InferenceRequest


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of one engine. Rows are cache rows: a greedy sequence takes one, a beam search `beam_size`."""

    max_rows: int = 64
    """Rows of each loop, which advance together."""
    max_batch_tokens: int = 4096
    """Padded source tokens (longest x count) of one encoder batch."""
    max_waiting_requests: int = 1024
    max_waiting_tokens: int = 131_072

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_batch_tokens", "max_waiting_requests", "max_waiting_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


_claiming = threading.Lock()
"""A loop that finishes and an engine that closes may settle the same ticket: the first one does."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A request in the line, with the future that its caller holds: cancelling that withdraws it."""

    request: InferenceRequest
    future: Future[GenerationResult]
    submitted: float

    @property
    def num_rows(self) -> int:
        return self.request.options.beam_size

    def is_late(self, now: float) -> bool:
        return self.request.deadline is not None and now >= self.request.deadline

    @property
    def is_settled(self) -> bool:
        """Nobody waits any more: answered, failed or withdrawn."""
        return self.future.done()

    def answer(self, result: GenerationResult) -> None:
        if self._claim():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        if self._claim():
            self.future.set_exception(error)

    def _claim(self) -> bool:
        """Whether the caller may settle the future; it does so outside the lock, because that runs callbacks."""
        with _claiming:
            is_open = not self.future.running() and not self.future.done()
            return is_open and self.future.set_running_or_notify_cancel()


class WaitingLine:
    """Tickets in the order of their coming. Loops wait on it when they have nothing to do, so nothing polls."""

    def __init__(self, limits: EngineLimits, num_loops: int, max_source_tokens: int) -> None:
        self._limits, self._num_loops = limits, num_loops
        self._max_source_tokens = max_source_tokens
        self._tickets: deque[Ticket] = deque()
        self._tokens = 0
        self._rows = 0
        self._earliest_deadline = math.inf
        self._active_rows = [0] * num_loops
        self._changed = threading.Condition()
        self._refusal: str | None = None
        self._stopping = False

    def add(self, requests: Sequence[InferenceRequest]) -> list[Ticket]:
        """Queue all of `requests` or none of them."""
        for request in requests:
            self._check_size(request)
        num_tokens = sum(request.num_tokens for request in requests)
        now = time.monotonic()
        tickets = [Ticket(request, Future(), now) for request in requests]
        with self._changed:
            if self._refusal is not None:
                raise ModelUnavailableError(self._refusal)
            self._check_room(len(requests), num_tokens)
            self._tickets.extend(tickets)
            self._tokens += num_tokens
            self._rows += sum(ticket.num_rows for ticket in tickets)
            self._earliest_deadline = min(self._earliest_deadline, _earliest_deadline(tickets))
            self._changed.notify_all()
        return tickets

    def _check_size(self, request: InferenceRequest) -> None:
        limits = self._limits
        bounds = {
            "source of {} tokens exceeds the limit of {} tokens": (request.num_tokens, self._max_source_tokens),
            "source of {} tokens exceeds the batch budget of {} tokens": (request.num_tokens, limits.max_batch_tokens),
            "beam_size {} exceeds the {} rows of one loop": (request.options.beam_size, limits.max_rows),
        }
        for text, (value, limit) in bounds.items():
            if value > limit:
                raise RequestTooLargeError(text.format(value, limit))
        if not request.num_tokens:
            raise RequestTooLargeError("source of 0 tokens: there is nothing to read")

    def _check_room(self, num_requests: int, num_tokens: int) -> None:
        limits = self._limits
        if num_requests > limits.max_waiting_requests or num_tokens > limits.max_waiting_tokens:
            raise RequestTooLargeError(
                f"{num_requests} texts of {num_tokens} tokens in one request can never be queued, "
                f"allowed: {limits.max_waiting_requests} texts and {limits.max_waiting_tokens} tokens"
            )
        if (
            len(self._tickets) + num_requests > limits.max_waiting_requests
            or self._tokens + num_tokens > limits.max_waiting_tokens
        ):
            raise OverloadedError(
                f"{len(self._tickets)} texts of {self._tokens} tokens are waiting, "
                f"allowed: {limits.max_waiting_requests} texts and {limits.max_waiting_tokens} tokens"
            )

    def take(self, loop: int, active_rows: int) -> list[Ticket] | None:
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
            while (
                self._tickets
                and active_rows < share
                and active_rows + self._tickets[0].num_rows <= self._limits.max_rows
            ):
                ticket = self._tickets.popleft()
                self._discount(ticket)
                active_rows += ticket.num_rows
                taken.append(ticket)
            self._active_rows[loop] = active_rows
            return taken

    def _take_late(self, now: float) -> list[Ticket]:
        if now < self._earliest_deadline:
            return []
        late = [ticket for ticket in self._tickets if ticket.is_late(now)]
        self._tickets = deque(ticket for ticket in self._tickets if not ticket.is_late(now))
        for ticket in late:
            self._discount(ticket)
        self._earliest_deadline = _earliest_deadline(self._tickets)
        return late

    def _discount(self, ticket: Ticket) -> None:
        self._tokens -= ticket.request.num_tokens
        self._rows -= ticket.num_rows

    def withdraw(self, ticket: Ticket) -> None:
        """Take `ticket` out, if it still waits: what nobody wants any more must not keep others out."""
        with self._changed:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                self._discount(ticket)

    def refuse(self, reason: str) -> None:
        """From now on `add` raises ModelUnavailableError with `reason`."""
        with self._changed:
            self._refusal = self._refusal or reason

    def stop(self) -> None:
        """Let the loops end when they have nothing left."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def clear(self) -> list[Ticket]:
        """Empty the line; returns who was in it."""
        with self._changed:
            tickets = list(self._tickets)
            self._tickets.clear()
            self._tokens = self._rows = 0
            return tickets

    def size(self) -> tuple[int, int, int]:
        """Waiting requests, waiting tokens, active rows."""
        with self._changed:
            return len(self._tickets), self._tokens, sum(self._active_rows)


def _earliest_deadline(tickets: Iterable[Ticket]) -> float:
    deadlines = (ticket.request.deadline for ticket in tickets)
    return min((deadline for deadline in deadlines if deadline is not None), default=math.inf)
