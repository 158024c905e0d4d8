"""The queue of every engine: bounded, in fair order, with tickets that their callers may cancel."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import Generic, NamedTuple, Protocol, TypeVar

from service.engine.core.errors import DeadlineError, ModelUnavailableError, OverloadedError, RequestTooLargeError
from service.engine.core.flow import Flow, current_flow
from service.engine.core.lanes import Lane
from service.engine.core.turns import Turns


class Request(Protocol):
    """What the queue needs of a request."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the input, special tokens included."""
        ...

    @property
    def deadline(self) -> float | None:
        """On `time.monotonic()`'s clock, in seconds; None waits without limit."""
        ...


RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class LineLimits:
    """Bounds of every engine."""

    max_batch_tokens: int = 4096
    """Padded input tokens (longest x count) of one encoder batch."""
    max_waiting_requests: int = 1024
    max_waiting_tokens: int = 131_072
    express_tokens: int = 128
    """A request that has asked for more tokens than these, over all its calls, is bulk."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}; it must be at least 1")


_claiming = threading.Lock()
"""Guards settling a ticket, which a loop and a closing engine may both try: the first one does."""


@dataclass(eq=False, slots=True)
class Ticket(Generic[RequestT, ResultT]):
    """A queued or running request, with the future that its caller holds and may cancel.

    `flow`, `lane`, `cost` and the virtual time `start` decide when it runs, and with which others.
    """

    request: RequestT
    future: Future[ResultT]
    submitted: float
    flow: Flow
    lane: Lane
    cost: int
    start: float = 0.0

    def is_late(self, now: float) -> bool:
        return self.request.deadline is not None and now >= self.request.deadline

    @property
    def is_settled(self) -> bool:
        """Answered, failed or cancelled."""
        return self.future.done()

    def answer(self, result: ResultT) -> None:
        if self._claim():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        if self._claim():
            self.future.set_exception(error)

    def fail_late(self, when: str) -> None:
        """Fail with a DeadlineError that says `when` the deadline passed, as in "before it was begun"."""
        seconds = time.monotonic() - self.submitted
        self.fail(DeadlineError(f"the deadline passed {when}, {seconds:.1f} s after the request came"))

    def _claim(self) -> bool:
        """Whether the calling thread may settle the future; it does so outside the lock, since that runs callbacks."""
        with _claiming:
            is_open = not self.future.running() and not self.future.done()
            return is_open and self.future.set_running_or_notify_cancel()


class LineSize(NamedTuple):
    """Queued requests and their tokens, and what runs: rows of a cache, or inputs in batches."""

    waiting_requests: int
    waiting_tokens: int
    active_rows: int


class BoundedLine(Generic[RequestT, ResultT]):
    """Tickets by lane, in fair order. Idle loops wait on its condition variable, so nothing polls.

    What a loop takes, and when, is up to the subclass: it asks a lane's `_turns` under `_changed`, and calls
    `_take_out`. `noun` is what messages call the input of a request.
    """

    def __init__(self, limits: LineLimits, max_input_tokens: int, noun: str) -> None:
        self._limits = limits
        self._max_input_tokens = max_input_tokens
        self._noun = noun
        # Keys in order of arrival, so that one in the middle is removed without a search.
        self._tickets: dict[Ticket[RequestT, ResultT], None] = {}
        self._turns: tuple[Turns[Ticket[RequestT, ResultT]], ...] = tuple(
            Turns(self._tickets.__contains__) for _ in Lane
        )
        self._tokens = 0
        self._earliest_deadline = math.inf
        self._changed = threading.Condition()
        self._refusal: str | None = None
        self._stopping = False
        self.num_withdrawals = 0
        """Grows whenever tickets are settled by another thread than their loop, which then checks its own."""

    def add(self, requests: Sequence[RequestT]) -> list[Ticket[RequestT, ResultT]]:
        """Queue all of `requests` or none of them."""
        for request in requests:
            self._check_size(request)
        num_tokens = sum(request.num_tokens for request in requests)
        now = time.monotonic()
        flow = current_flow()
        total = flow.tokens.get(self, 0) + num_tokens
        lane = self._lane(total)
        # By position: keyword arguments of Ticket would take as long as the rest of the work for a request here.
        tickets: list[Ticket[RequestT, ResultT]] = [
            Ticket(request, Future(), now, flow, lane, self._cost(request)) for request in requests
        ]
        with self._changed:
            if self._refusal is not None:
                raise ModelUnavailableError(self._refusal)
            self._check_room(len(requests), num_tokens)
            flow.tokens[self] = total
            for ticket in tickets:
                self._tickets[ticket] = None
                self._count(ticket)
            self._turns[lane].add(flow, tickets)
            self._earliest_deadline = min(self._earliest_deadline, _earliest_deadline(tickets))
            self._wake()
        return tickets

    def _lane(self, num_tokens: int) -> Lane:
        """The lane of a request that has asked for so many tokens until now."""
        return Lane.BULK if num_tokens > self._limits.express_tokens else Lane.EXPRESS

    def _cost(self, request: RequestT) -> int:
        """What a request takes of the engine, in proportion to others."""
        return request.num_tokens

    def _wake(self) -> None:
        """Wake the threads that may take a new ticket."""
        self._changed.notify_all()

    def _check_size(self, request: RequestT) -> None:
        """Raise RequestTooLargeError for a request that could never be admitted."""
        noun, num_tokens = self._noun, request.num_tokens
        if num_tokens > self._max_input_tokens:
            raise RequestTooLargeError(
                f"{noun} of {num_tokens} tokens exceeds the limit of {self._max_input_tokens} tokens"
            )
        if num_tokens > self._limits.max_batch_tokens:
            raise RequestTooLargeError(
                f"{noun} of {num_tokens} tokens exceeds the batch budget of {self._limits.max_batch_tokens} tokens"
            )
        if not num_tokens:
            raise RequestTooLargeError(f"{noun} of 0 tokens: there is nothing to read")

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

    def _count(self, ticket: Ticket[RequestT, ResultT]) -> None:
        """Add a ticket that has entered the queue to the counts."""
        self._tokens += ticket.request.num_tokens

    def _discount(self, ticket: Ticket[RequestT, ResultT]) -> None:
        """Subtract a ticket that has left the queue from the counts."""
        self._tokens -= ticket.request.num_tokens

    def _take_out(self, tickets: Sequence[Ticket[RequestT, ResultT]], lane: Lane) -> None:
        """These tickets of one lane have their turn."""
        self._turns[lane].take(tickets)
        for ticket in tickets:
            del self._tickets[ticket]
            self._discount(ticket)

    def _take_late(self, now: float) -> list[Ticket[RequestT, ResultT]]:
        if now < self._earliest_deadline:
            return []
        late = [ticket for ticket in self._tickets if ticket.is_late(now)]
        for ticket in late:
            del self._tickets[ticket]
            self._discount(ticket)
        self._earliest_deadline = _earliest_deadline(self._tickets)
        return late

    def withdraw(self, ticket: Ticket[RequestT, ResultT]) -> None:
        """Remove `ticket` if it is still queued, so that a cancelled request does not count against the limits."""
        with self._changed:
            self.num_withdrawals += 1
            if ticket in self._tickets:
                del self._tickets[ticket]
                self._discount(ticket)

    def size(self) -> LineSize:
        """A snapshot."""
        with self._changed:
            return LineSize(len(self._tickets), self._tokens, self._num_active())

    def _num_active(self) -> int:
        """Rows or inputs that run now."""
        return 0

    def refuse(self, reason: str) -> None:
        """From now on `add` raises ModelUnavailableError with `reason`."""
        with self._changed:
            self._refusal = self._refusal or reason

    def stop(self) -> None:
        """Let the loops end when the queue is empty."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def clear(self) -> list[Ticket[RequestT, ResultT]]:
        """Empty the queue; returns the tickets that were in it."""
        with self._changed:
            tickets = list(self._tickets)
            self._tickets.clear()
            for ticket in tickets:
                self._discount(ticket)
            return tickets

    def note_withdrawals(self) -> None:
        """Make the loops check the tickets that they have taken."""
        with self._changed:
            self.num_withdrawals += 1


class Watch(Generic[RequestT, ResultT]):
    """Tells a loop when to check its own tickets for cancelled and late ones, so that it does not at every step."""

    def __init__(self, line: BoundedLine[RequestT, ResultT]) -> None:
        self._line = line
        self._num_withdrawals = 0
        self._earliest_deadline = math.inf

    def add(self, tickets: Iterable[Ticket[RequestT, ResultT]]) -> None:
        """Note tickets that the loop has taken."""
        self._earliest_deadline = min(self._earliest_deadline, _earliest_deadline(tickets))

    def is_due(self, now: float) -> bool:
        """Whether a ticket may have been settled since this was last true, or one of the loop's is late."""
        # Read before the tickets are: one that is settled during the check causes another check.
        num_withdrawals = self._line.num_withdrawals
        if num_withdrawals == self._num_withdrawals and now < self._earliest_deadline:
            return False
        self._num_withdrawals = num_withdrawals
        return True

    def renew(self, tickets: Iterable[Ticket[RequestT, ResultT]]) -> None:
        """Note the tickets that are left after a check."""
        self._earliest_deadline = _earliest_deadline(tickets)


def _earliest_deadline(tickets: Iterable[Ticket[RequestT, ResultT]]) -> float:
    deadlines = (ticket.request.deadline for ticket in tickets)
    return min((deadline for deadline in deadlines if deadline is not None), default=math.inf)
