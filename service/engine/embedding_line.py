"""The waiting line of embedding: batches of like length around the oldest that wait, shared by all loops."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from service.engine import line
from service.engine.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.embedding_batches import choose_batch

Ticket = line.Ticket[EmbeddingRequest, EmbeddingResult]


@dataclass(frozen=True, slots=True)
class EmbeddingLimits(line.LineLimits):
    """Bounds of one engine, and what its batches are chosen by (docs/decisions/0041 has the measurements)."""

    overhead_tokens: int = 12
    """What a batch costs however small it is, in tokens of computing time."""
    window_requests: int = 256
    """How many of the oldest inputs are sorted by length to choose a batch from."""


class Taken(NamedTuple):
    """What a loop has taken: a batch, which may be empty, and tickets whose deadline passed as they waited."""

    batch: list[Ticket]
    late: list[Ticket]
    number: int
    """Of the batch, from 0, in the order of taking."""


class EmbeddingLine(line.BoundedLine[EmbeddingRequest, EmbeddingResult]):
    """Requests that wait for a batch.

    While `num_loops` batches run, one more may be taken, so that it is formed when the next of them ends; but only when
    what waits fills it: one that is not full stays in the line, where newcomers join it, and nothing is lost by that.
    """

    _limits: EmbeddingLimits

    def __init__(self, limits: EmbeddingLimits, num_loops: int, max_input_tokens: int) -> None:
        super().__init__(limits, max_input_tokens, "input")
        self._num_loops = num_loops
        self._num_taken = 0
        self._num_finished = 0
        self._active_requests = 0
        self._active_tokens = 0

    def take(self) -> Taken | None:
        """The next batch, without waiting when a loop is free and there is any; None means: stop.

        Whoever takes a batch that is not empty calls `finish` with it, and waits with `begin` before running it.
        """
        with self._changed:
            while not self._is_ready():
                if self._stopping and not self._tickets:
                    return None
                self._changed.wait()
            late = self._take_late(time.monotonic())
            batch = self._choose()
            for ticket in batch:
                del self._tickets[ticket]
                self._discount(ticket)
                self._active_tokens += ticket.request.num_tokens
            self._active_requests += len(batch)
            taken = Taken(batch, late, self._num_taken)
            self._num_taken += bool(batch)
            return taken

    def begin(self, number: int) -> None:
        """Wait until the device is free for the batch `number`: they run in the order in which they were taken."""
        with self._changed:
            self._changed.wait_for(lambda: number < self._num_finished + self._num_loops)

    def finish(self, batch: list[Ticket]) -> None:
        """The device is done with `batch`, or the batch is not to run after all."""
        with self._changed:
            self._num_finished += 1
            self._active_requests -= len(batch)
            self._active_tokens -= sum(ticket.request.num_tokens for ticket in batch)
            self._changed.notify_all()

    def _is_ready(self) -> bool:
        if not self._tickets:
            return False
        num_batches = self._num_taken - self._num_finished
        is_full = self._tokens >= self._limits.max_batch_tokens
        return num_batches < self._num_loops or (num_batches == self._num_loops and is_full)

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

    def size(self) -> tuple[int, int, int]:
        """Waiting requests, waiting tokens, requests in batches that run or are about to."""
        with self._changed:
            return len(self._tickets), self._tokens, self._active_requests
