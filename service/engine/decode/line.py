"""The queue of decoding: admission by rows and bytes of the cache, shared by the loops of one engine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from service.engine.core import line
from service.engine.core.errors import RequestTooLargeError
from service.engine.decode.backend import Backend
from service.engine.decode.sequence import Ticket
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
    """Rows of each loop, which advance together."""
    max_cache_bytes: int = 1 << 30
    """Bytes that the admitted requests of all loops may fill at their longest, so that none runs out of memory."""
    max_prefix_tokens: int = 8192
    """Positions of finished rows in the prefix cache; 1 turns it off."""


class Usage(NamedTuple):
    """What the sequences of a loop take: rows, and the bytes that they fill at their longest."""

    rows: int = 0
    num_bytes: int = 0


class DecodingLine(line.BoundedLine[DecodingRequest, Result]):
    """Requests that wait for rows and bytes of the cache."""

    _limits: DecodingLimits

    def __init__(self, limits: DecodingLimits, num_loops: int, backend: Backend) -> None:
        noun, longest = ("source", backend.max_source_tokens) if backend.max_source_tokens else ("prompt", 0)
        super().__init__(limits, longest or backend.max_total_tokens, noun)
        self._backend = backend
        self._num_loops = num_loops
        self._rows = 0
        self._usage = [Usage()] * num_loops

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

    def take(self, loop: int, usage: Usage) -> list[Ticket] | None:
        """The next tickets for a loop that uses `usage`; waits while the loop is idle and the queue empty.

        A loop takes no more than its share of all rows, so that another loop can run the rest now. Late tickets are
        taken whether there is room or not, so that they fail in time. None: the loop ends.
        """
        with self._changed:
            if usage.num_bytes < self._usage[loop].num_bytes:
                self._changed.notify_all()  # another loop may wait for bytes
            self._usage[loop] = usage
            while True:
                taken = self._take_now(loop)
                if taken or usage.rows:
                    return taken
                if self._stopping and not self._tickets:
                    return None
                self._changed.wait()

    def _take_now(self, loop: int) -> list[Ticket]:
        if not self._tickets:
            return []
        taken = self._take_late(time.monotonic())
        # The last ticket may exceed the share, since a beam takes several rows.
        share = -(-(self._rows + self._num_active()) // self._num_loops)
        while self._tickets and self._usage[loop].rows < share:
            ticket = next(iter(self._tickets))
            if not self._admit(loop, ticket.request):
                break
            del self._tickets[ticket]
            self._discount(ticket)
            taken.append(ticket)
        return taken

    def _admit(self, loop: int, request: DecodingRequest) -> bool:
        """Reserve the loop's rows and the engine's bytes that the request needs; False where they are not free."""
        rows = self._usage[loop].rows + request.num_rows
        needed = self.cache_bytes(request)
        in_use = sum(usage.num_bytes for usage in self._usage)
        if rows > self._limits.max_rows or in_use + needed > self._limits.max_cache_bytes:
            return False
        self._usage[loop] = Usage(rows, self._usage[loop].num_bytes + needed)
        return True

    def _count(self, ticket: Ticket) -> None:
        super()._count(ticket)
        self._rows += ticket.request.num_rows

    def _discount(self, ticket: Ticket) -> None:
        super()._discount(ticket)
        self._rows -= ticket.request.num_rows

    def _num_active(self) -> int:
        return sum(usage.rows for usage in self._usage)
