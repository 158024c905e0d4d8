"""The queue of decoding: admission by rows and bytes of the cache, shared by the loops of one engine."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.engine.core import line
from service.engine.core.errors import RequestTooLargeError
from service.engine.core.lanes import CONTENDED_SECONDS, Lane
from service.engine.decode.backend import Backend
from service.engine.decode.sequence import Ticket
from service.engine.decode.speed import Speed
from service.engine.decode.types import DecodingRequest, Result


@dataclass(frozen=True, slots=True)
class DecodingLimits(line.LineLimits):
    """Bounds of one engine. Rows are cache rows: a greedy sequence takes one, a beam search `beam_size`."""

    max_batch_tokens: int = 4096
    """Tokens of sources, padding included, of one encoder batch."""
    overhead_tokens: int = 24
    """Fixed cost of an encoder batch, in tokens of computing time."""
    max_prompt_batch_tokens: int = 256
    """Prefill tokens per decode step, padding included."""
    greedy_steps: int = 1
    """Steps of greedy decoding between two looks at what was chosen."""
    max_rows: int = 128
    """Rows of each loop for either lane; both together may have a quarter more."""
    max_cache_bytes: int = 1 << 30
    """Bytes that the admitted requests of all loops may fill at their longest, so that none runs out of memory."""
    max_prefix_tokens: int = 8192
    """Positions of finished rows in the prefix cache; 1 turns it off."""
    contended_tokens: int = 256
    """Tokens of sources that long requests have encoded in one piece while short requests come."""


_ROW_RESERVE, _BYTE_RESERVE = 4, 16
"""What part of the rows and of the bytes, as 1 / this, is for the other lane alone."""
_UNREAD_CALLS = 4
"""Prompts are admitted for so many calls that read them, so that those who wait for longer wait in the line's order."""


class Usage(NamedTuple):
    """Rows that the sequences of a loop take, and the bytes that they fill at their longest: of both lanes, of bulk."""

    rows: int = 0
    num_bytes: int = 0
    bulk_rows: int = 0
    bulk_bytes: int = 0

    def plus(self, lane: Lane, rows: int, num_bytes: int) -> Usage:
        """With so much more in `lane`, or less where negative."""
        is_bulk = lane is Lane.BULK
        return Usage(
            self.rows + rows,
            self.num_bytes + num_bytes,
            self.bulk_rows + rows * is_bulk,
            self.bulk_bytes + num_bytes * is_bulk,
        )

    def lane_rows(self, lane: Lane) -> int:
        """The rows of one lane."""
        return self.bulk_rows if lane is Lane.BULK else self.rows - self.bulk_rows


class DecodingLine(line.BoundedLine[DecodingRequest, Result]):
    """Requests that wait for rows and bytes of the cache.

    Short requests find rows and bytes that long ones may not fill. What waits of the express lane is admitted first;
    a bulk request that waits for bytes keeps all but a share of them from the express lane, so both get on.
    """

    _limits: DecodingLimits

    def __init__(
        self, limits: DecodingLimits, num_loops: int, backend: Backend, capacities: Sequence[int] = ()
    ) -> None:
        noun, longest = ("source", backend.max_source_tokens) if backend.max_source_tokens else ("prompt", 0)
        super().__init__(limits, longest or backend.max_total_tokens, noun)
        self._backend = backend
        self._num_loops = num_loops
        self._rows = [0, 0]  # that what waits in each lane will take
        self._usage = [Usage()] * num_loops
        self._last_express = -math.inf
        self.speed = Speed(limits.max_rows, capacities)

    def cache_bytes(self, request: DecodingRequest) -> int:
        """The bytes that a request fills at its longest."""
        positions = request.num_rows * request.num_positions * self._backend.bytes_per_position
        return positions + len(request.source_ids or ()) * self._backend.bytes_per_source_token

    def _check_size(self, request: DecodingRequest) -> None:
        if request.source_ids is not None:
            super()._check_size(request)
        if not request.prompt_ids:
            raise RequestTooLargeError("prompt of 0 tokens: there is nothing to continue")
        if request.num_rows > self._limits.max_rows:
            raise RequestTooLargeError(
                f"beam_size {request.num_rows} exceeds the {self._limits.max_rows} rows of one loop"
            )
        longest = self._backend.max_total_tokens
        if request.num_positions > longest:
            raise RequestTooLargeError(
                f"prompt of {len(request.prompt_ids)} tokens and {request.options.max_new_tokens} new tokens exceed "
                f"the model's {longest} positions"
            )
        if (needed := self.cache_bytes(request)) > self._limits.max_cache_bytes:
            raise RequestTooLargeError(
                f"prompt of {len(request.prompt_ids)} tokens and {request.options.max_new_tokens} new tokens in "
                f"{request.num_rows} rows take {needed} bytes of the cache, which holds {self._limits.max_cache_bytes}"
            )

    def is_contended(self, now: float) -> bool:
        """Whether short requests come, so that long work is to be done in small pieces."""
        return now - self._last_express < CONTENDED_SECONDS

    def has_nothing_for(self, loop: int, usage: Usage) -> bool:
        """Whether `take` would neither give a working loop tickets nor learn anything; without its lock, at each step.

        A ticket that comes meanwhile is taken after the next step.
        """
        return not self._tickets and usage.rows > 0 and usage == self._usage[loop]

    def take(self, loop: int, usage: Usage, unread: Sequence[int] = (0, 0)) -> list[Ticket] | None:
        """The next tickets for a loop that uses `usage`; waits while the loop is idle and the queue empty.

        `unread` tokens of the loop's prompts in each lane are not prefilled yet. A loop takes no more than its share of
        all rows, so that another loop can run the rest now. Late tickets are taken whether there is room or not, so
        that they fail in time. None: the loop ends.
        """
        with self._changed:
            if usage.num_bytes < self._usage[loop].num_bytes:
                self._changed.notify_all()  # another loop may wait for bytes
            self._usage[loop] = usage
            while True:
                taken = self._take_now(loop, unread)
                if taken or usage.rows:
                    return taken
                if self._stopping and not self._tickets:
                    return None
                self._changed.wait()

    def _take_now(self, loop: int, unread: Sequence[int]) -> list[Ticket]:
        if not self._tickets:
            return []
        now = time.monotonic()
        taken = self._take_late(now)
        limits = self._limits
        if not self._backend.max_source_tokens:
            budgets = [_UNREAD_CALLS * limits.max_prompt_batch_tokens - num_tokens for num_tokens in unread]
        else:
            bulk = limits.contended_tokens if self.is_contended(now) else limits.max_batch_tokens
            budgets = [limits.max_batch_tokens, min(bulk, limits.max_batch_tokens)]
        for lane, budget in zip(Lane, budgets, strict=True):
            if self._rows[lane]:
                taken += self._take_lane(loop, lane, budget)
        return taken

    def _take_lane(self, loop: int, lane: Lane, max_tokens: int) -> list[Ticket]:
        """The next tickets of a lane, until they have `max_tokens` to encode or read."""
        turns, taken, num_tokens = self._turns[lane], list[Ticket](), 0
        # The last ticket may exceed the share, since a beam takes several rows.
        active = sum(usage.lane_rows(lane) for usage in self._usage)
        share = -(-(self._rows[lane] + active) // self._num_loops)
        while self._usage[loop].lane_rows(lane) < share and num_tokens < max_tokens:
            ticket = turns.next()
            if ticket is None or not self._admit(loop, lane, ticket.request):
                break
            self._take_out([ticket], lane)
            num_tokens += ticket.request.num_tokens
            taken.append(ticket)
        return taken

    def _admit(self, loop: int, lane: Lane, request: DecodingRequest) -> bool:
        """Reserve the loop's rows and the engine's bytes that the request needs; False where they are not free."""
        limits, usage = self._limits, self._usage[loop]
        needed, rows = self.cache_bytes(request), request.num_rows
        if usage.lane_rows(lane) + rows > limits.max_rows:
            return False
        if usage.rows + rows > limits.max_rows + limits.max_rows // _ROW_RESERVE:
            return False
        if needed > self._free_bytes(lane):
            return False
        self._usage[loop] = usage.plus(lane, rows, needed)
        return True

    def _free_bytes(self, lane: Lane) -> int:
        """The bytes that the next request of a lane may take."""
        most = self._limits.max_cache_bytes
        reserve = most // _BYTE_RESERVE
        bulk = sum(usage.bulk_bytes for usage in self._usage)
        express = sum(usage.num_bytes for usage in self._usage) - bulk
        if lane is Lane.BULK:  # one that needs nearly all may have them, alone
            return most - bulk - max(express, reserve if bulk else 0)
        waiting = self._turns[Lane.BULK].next() if self._rows[Lane.BULK] else None
        if waiting is None:
            return most - bulk - express
        # Else it would wait for ever while others of the express lane come.
        needed = self.cache_bytes(waiting.request)
        allowed = max(min(reserve, most - needed), most - needed - bulk)
        return min(most - bulk, allowed) - express

    def _cost(self, request: DecodingRequest) -> int:
        return request.num_rows * request.num_tokens

    def _count(self, ticket: Ticket) -> None:
        super()._count(ticket)
        self._rows[ticket.lane] += ticket.request.num_rows
        if ticket.lane is Lane.EXPRESS:
            self._last_express = ticket.submitted

    def _discount(self, ticket: Ticket) -> None:
        super()._discount(ticket)
        self._rows[ticket.lane] -= ticket.request.num_rows

    def _num_active(self) -> int:
        return sum(usage.rows for usage in self._usage)
