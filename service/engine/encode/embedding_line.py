"""The waiting line of embedding: batches of like length around the oldest that wait, shared by all loops."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from service.engine.core import line
from service.engine.core.arrays import Floats
from service.engine.core.batches import choose_batch
from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.encode.embedding_batches import BatchArrays

Ticket = line.Ticket[EmbeddingRequest, EmbeddingResult]


@dataclass(frozen=True, slots=True)
class EmbeddingLimits(line.LineLimits):
    """Bounds of one engine, and what its batches are chosen by (docs/decisions/0041 has the measurements)."""

    overhead_tokens: int = 16
    """What a batch costs however small it is, in tokens of computing time."""
    window_requests: int = 512
    """How many of the oldest inputs are sorted by length to choose a batch from."""


class Stage(Enum):
    """What is to be done with a batch."""

    FORM = "form"
    RUN = "run"
    ANSWER = "answer"


@dataclass(eq=False, slots=True)
class Batch:
    """Inputs on their way through the engine; each stage fills in what it finds."""

    tickets: list[Ticket]
    late: list[Ticket]
    """Those whose deadline passed as they waited: they are no part of the batch."""
    num_requests: int
    num_tokens: int
    arrays: BatchArrays | None = None
    values: Floats | None = None
    """None where nobody waited for them any more."""
    started: float = 0.0
    seconds: float = 0.0


class EmbeddingLine(line.BoundedLine[EmbeddingRequest, EmbeddingResult]):
    """Requests that wait for a batch, and the batches between their stages.

    A thread with nothing to do takes what is most urgent: it runs a batch that is formed while fewer than `num_loops`
    run, else answers one that has run, else forms one. So whoever has run a batch goes on with the next, which no other
    thread must be woken for, and its answers are given meanwhile (docs/decisions/0041).

    While `num_loops` batches run, one more may be formed, but only when what waits fills it: one that is not full stays
    in the line, where newcomers join it, and nothing is lost by that.
    """

    _limits: EmbeddingLimits

    def __init__(self, limits: EmbeddingLimits, num_loops: int, max_input_tokens: int) -> None:
        super().__init__(limits, max_input_tokens, "input")
        self._num_loops = num_loops
        self._num_forming = 0
        self._num_running = 0
        self._formed: deque[Batch] = deque()
        self._ran: deque[Batch] = deque()
        self._active_requests = 0
        self._active_tokens = 0

    def take(self) -> tuple[Stage, Batch] | None:
        """A batch and what to do with it, as soon as there is any; None means: stop.

        Whoever forms a batch hands it to `formed`, and whoever runs one to `ran`.
        """
        with self._changed:
            while (stage := self._most_urgent()) is None:
                if self._stopping and not self._tickets:
                    return None
                self._changed.wait()
            batch = self._take(stage)
            self._wake()  # each who takes something wakes who may take what is left
            return stage, batch

    def formed(self, batch: Batch) -> None:
        """`batch` can run, unless nobody of it waits any more."""
        with self._changed:
            self._num_forming -= 1
            if batch.tickets:
                self._formed.append(batch)
            else:
                self._leave(batch)

    def ran(self, batch: Batch) -> None:
        """The device is done with `batch`, which is to be answered."""
        with self._changed:
            self._num_running -= 1
            self._leave(batch)
            self._ran.append(batch)

    def _most_urgent(self) -> Stage | None:
        if self._formed and self._num_running < self._num_loops:
            return Stage.RUN
        if self._ran:
            return Stage.ANSWER
        if not self._tickets:
            return None
        num_batches = self._num_forming + len(self._formed) + self._num_running
        is_full = self._tokens >= self._limits.max_batch_tokens
        return Stage.FORM if num_batches < self._num_loops + is_full else None

    def _take(self, stage: Stage) -> Batch:
        if stage is Stage.RUN:
            self._num_running += 1
            return self._formed.popleft()
        if stage is Stage.ANSWER:
            return self._ran.popleft()
        self._num_forming += 1
        late = self._take_late(time.monotonic())
        tickets = self._choose()
        for ticket in tickets:
            del self._tickets[ticket]
            self._discount(ticket)
        batch = Batch(tickets, late, len(tickets), sum(ticket.request.num_tokens for ticket in tickets))
        self._active_requests += batch.num_requests
        self._active_tokens += batch.num_tokens
        return batch

    def _leave(self, batch: Batch) -> None:
        """`batch` is no longer about to run."""
        self._active_requests -= batch.num_requests
        self._active_tokens -= batch.num_tokens

    def _wake(self) -> None:
        # One thread, and only for what it could take: waking one for nothing costs as much as forming a batch.
        if self._most_urgent() is not None:
            self._changed.notify()

    def _choose(self) -> list[Ticket]:
        """A batch of one kind, that of the oldest, and no more than a loop's share of all there is to do."""
        if not self._tickets:
            return []
        limits = self._limits
        window = list(islice(self._tickets, limits.window_requests))
        kind = window[0].request.wants_tokens
        alike = [ticket for ticket in window if ticket.request.wants_tokens == kind]
        share = -(-(self._tokens + self._active_tokens) // self._num_loops)
        lengths = [ticket.request.num_tokens for ticket in alike]
        return [
            alike[index] for index in choose_batch(lengths, min(limits.max_batch_tokens, share), limits.overhead_tokens)
        ]

    def _num_active(self) -> int:
        """Requests in batches that run or are about to."""
        return self._active_requests
