"""The engine of one model's attention maps: one input at a time, in fair order."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

from service.engine.core import line
from service.engine.core.base import BaseEngine, check_ids
from service.engine.core.lanes import Lane
from service.engine.core.observer import NullObserver, Observer
from service.engine.core.types import WorkCounts
from service.engine.encode.attention import AttentionRequest, AttentionResult, Maps

Ticket = line.Ticket[AttentionRequest, AttentionResult]


class AttentionBackend(Protocol):
    """A loaded model that gives its attention maps; used by one thread."""

    vocab_size: int
    num_token_types: int
    reads_source: bool
    reads_target: bool
    max_source_tokens: int
    max_target_tokens: int

    def maps(self, request: AttentionRequest) -> tuple[Maps, Maps | None]:
        """The maps of one input, and their norms where requested."""
        ...


class AttentionLine(line.BoundedLine[AttentionRequest, AttentionResult]):
    """Requests that wait for the one thread."""

    num_running = 0
    """0 or 1; written by the thread."""

    def take(self) -> Ticket | None:
        """The ticket whose turn it is, which may be late; None: the thread ends."""
        with self._changed:
            while not self._tickets:
                if self._stopping:
                    return None
                self._changed.wait()
            ticket = self._turns[Lane.EXPRESS].next()
            assert ticket is not None  # some wait, and all in this lane
            self._take_out([ticket], Lane.EXPRESS)
            return ticket

    def _lane(self, num_tokens: int) -> Lane:
        """One for all: what runs one by one needs no lanes."""
        return Lane.EXPRESS

    def _num_active(self) -> int:
        return self.num_running


class _Part(NamedTuple):
    """One side of a request, and what is allowed of it."""

    name: str
    ids: tuple[int, ...] | None
    is_read: bool
    max_tokens: int


class AttentionEngine(BaseEngine[AttentionRequest, AttentionResult]):
    """Low traffic: one thread, no batching.

    A batch would gain nothing: the time goes into maps, quadratic in the length, and not into reading weights.
    """

    _line: AttentionLine

    def __init__(
        self, backend: AttentionBackend, limits: line.LineLimits | None = None, observer: Observer | None = None
    ) -> None:
        self.backend = backend
        self._observer = observer or NullObserver()
        longest = backend.reads_source * backend.max_source_tokens + backend.reads_target * backend.max_target_tokens
        attention_line = AttentionLine(limits or line.LineLimits(), longest, "input")
        self._done = WorkCounts()  # a step is an input
        super().__init__(attention_line, [self._serve], [self._done])

    def _check(self, request: AttentionRequest) -> None:
        """Raise ValueError for ids outside their tables and for inputs that are too long."""
        backend = self.backend
        parts = (
            _Part("source_ids", request.source_ids, backend.reads_source, backend.max_source_tokens),
            _Part("target_ids", request.target_ids, backend.reads_target, backend.max_target_tokens),
        )
        for part in parts:
            if bool(part.ids) != part.is_read:
                raise ValueError(f"{part.name} must {'be given' if part.is_read else 'not be given'} for this model")
            if part.ids is None:
                continue
            if len(part.ids) > part.max_tokens:
                raise ValueError(f"{part.name} has {len(part.ids)} tokens, allowed: 1 to {part.max_tokens}")
            check_ids(part.name, part.ids, backend.vocab_size)
        types, num_tokens = request.token_type_ids, len(request.source_ids or ())
        if types is not None:
            if len(types) != num_tokens:
                raise ValueError(f"token_type_ids has {len(types)} numbers for {num_tokens} tokens")
            check_ids("token_type_ids", types, max(1, backend.num_token_types))

    def _serve(self) -> None:
        while (ticket := self._line.take()) is not None:
            started = time.monotonic()
            if ticket.is_late(started):
                ticket.fail_late("before it was begun")
            elif not ticket.is_settled:
                self._line.num_running = 1
                self._answer(ticket, started)
                self._line.num_running = 0

    def _answer(self, ticket: Ticket, started: float) -> None:
        queued = started - ticket.submitted
        self._observer.on_queue(queued)
        maps, norms = self.backend.maps(ticket.request)
        self._done.num_steps += 1
        self._done.num_tokens += ticket.request.num_tokens
        self._observer.on_encode(1, ticket.request.num_tokens, 0)
        ticket.answer(AttentionResult(maps, norms, queued, time.monotonic() - started, ticket.request.num_tokens))
