"""The queue of embedding: batches of like length around the input whose turn it is, shared by all loops."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from enum import Enum

from service.engine.core import line
from service.engine.core.arrays import Floats
from service.engine.core.batches import choose_batch
from service.engine.core.lanes import CONTENDED_SECONDS, Lane, LaneClock
from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.encode.embedding_batches import BatchArrays

Ticket = line.Ticket[EmbeddingRequest, EmbeddingResult]


@dataclass(frozen=True, slots=True)
class EmbeddingLimits(line.LineLimits):
    """Bounds of one engine, and parameters of its batches (docs/decisions/0041 has the measurements)."""

    overhead_tokens: int = 16
    """Fixed cost of a batch, in tokens of computing time."""
    window_requests: int = 512
    """How many of the next inputs are sorted by length to choose a batch from."""
    contended_tokens: int = 256
    """Padded tokens of a batch of the bulk lane while short requests come, unless one input is longer."""


class Stage(Enum):
    """What is to be done with a batch."""

    FORM = "form"
    RUN = "run"
    ANSWER = "answer"


@dataclass(eq=False, slots=True)
class Batch:
    """Inputs that are processed together; each stage fills in its outputs."""

    tickets: list[Ticket]
    late: list[Ticket]
    """Those whose deadline passed in the queue; not part of the batch."""
    num_requests: int
    num_tokens: int
    lane: Lane
    arrays: BatchArrays | None = None
    values: Floats | None = None
    """None where every request was cancelled."""
    started: float = 0.0
    seconds: float = 0.0


class EmbeddingLine(line.BoundedLine[EmbeddingRequest, EmbeddingResult]):
    """Requests that wait for a batch, and the batches between their stages.

    An idle thread takes what is most urgent: it runs a formed batch while fewer than `num_loops` run, else sets the
    results of one that has run, else forms one. So the thread that has run a batch continues with the next one without
    waking another, while the results of the last are set by another thread (docs/decisions/0041).

    While `num_loops` batches run, one more may be formed, but only when what waits fills it: one that is not full stays
    in the line, where newcomers join it, and nothing is lost by that.

    No batch has inputs of both lanes. Where both have inputs, the lanes take turns by the tokens that they compute, and
    one batch of the express lane is formed ahead of what the bulk lane has formed.
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
        self._waiting_tokens = [0, 0]  # of each lane
        self._clock = LaneClock(lead=limits.max_batch_tokens)
        self._last_express = -math.inf

    def take(self) -> tuple[Stage, Batch] | None:
        """A batch and what to do with it, as soon as there is any; None: the thread ends.

        The thread passes a batch that it has formed to `formed`, and one that it has run to `ran`.
        """
        with self._changed:
            while (stage := self._most_urgent()) is None:
                if self._stopping and not self._tickets:
                    return None
                self._changed.wait()
            batch = self._take(stage)
            self._wake()  # another thread, for what is left
            return stage, batch

    def formed(self, batch: Batch) -> None:
        """Mark `batch` as ready to run, unless all its requests were cancelled."""
        with self._changed:
            self._num_forming -= 1
            if batch.tickets and batch.lane is Lane.EXPRESS:
                self._formed.insert(sum(other.lane is Lane.EXPRESS for other in self._formed), batch)
            elif batch.tickets:
                self._formed.append(batch)
            else:
                self._leave(batch)

    def ran(self, batch: Batch) -> None:
        """Mark `batch` as run: its results can be set."""
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
        return Stage.FORM if num_batches < self._num_loops + is_full or self._may_overtake() else None

    def _may_overtake(self) -> bool:
        """Whether the express lane may form a batch that runs before the one that the bulk lane has formed."""
        if not self._waiting_tokens[Lane.EXPRESS] or self._num_forming or not self._formed:
            return False
        return self._formed[0].lane is Lane.BULK and self._clock.choose(True, True) is Lane.EXPRESS

    def _take(self, stage: Stage) -> Batch:
        if stage is Stage.RUN:
            self._num_running += 1
            return self._formed.popleft()
        if stage is Stage.ANSWER:
            return self._ran.popleft()
        self._num_forming += 1
        now = time.monotonic()
        late = self._take_late(now)
        has_express, has_bulk = (tokens > 0 for tokens in self._waiting_tokens)
        lane = self._clock.choose(has_express, has_bulk)
        tickets = self._choose(lane, now)
        self._take_out(tickets, lane)
        batch = Batch(tickets, late, len(tickets), sum(ticket.request.num_tokens for ticket in tickets), lane)
        self._clock.spend(lane, batch.num_tokens)
        self._active_requests += batch.num_requests
        self._active_tokens += batch.num_tokens
        return batch

    def _leave(self, batch: Batch) -> None:
        """Subtract `batch` from the counts of what runs or is about to."""
        self._active_requests -= batch.num_requests
        self._active_tokens -= batch.num_tokens

    def _wake(self) -> None:
        # One thread, and only if it could take something: a needless wake-up costs as much as forming a batch.
        if self._most_urgent() is not None:
            self._changed.notify()

    def _choose(self, lane: Lane, now: float) -> list[Ticket]:
        """A batch of one kind, that of the next input, and no more than a loop's share of all there is to do."""
        limits = self._limits
        window = self._turns[lane].window(limits.window_requests)
        if not window:
            return []
        kind = window[0].request.wants_tokens
        alike = [ticket for ticket in window if ticket.request.wants_tokens == kind]
        share = -(-(self._waiting_tokens[lane] + self._active_tokens) // self._num_loops)
        is_contended = lane is Lane.BULK and now - self._last_express < CONTENDED_SECONDS
        most = min(limits.max_batch_tokens, limits.contended_tokens) if is_contended else limits.max_batch_tokens
        lengths = [ticket.request.num_tokens for ticket in alike]
        return [alike[index] for index in choose_batch(lengths, min(most, share), limits.overhead_tokens)]

    def _count(self, ticket: Ticket) -> None:
        super()._count(ticket)
        self._waiting_tokens[ticket.lane] += ticket.request.num_tokens
        if ticket.lane is Lane.EXPRESS:
            self._last_express = ticket.submitted

    def _discount(self, ticket: Ticket) -> None:
        super()._discount(ticket)
        self._waiting_tokens[ticket.lane] -= ticket.request.num_tokens

    def _num_active(self) -> int:
        """Requests in batches that run or are about to."""
        return self._active_requests
