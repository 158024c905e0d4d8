"""The engine of one model's attention maps: one input at a time, in the order of coming."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

from service.engine import line
from service.engine.attention import AttentionRequest, AttentionResult, Maps
from service.engine.base import BaseEngine
from service.engine.observer import NullObserver, Observer
from service.engine.types import EngineStats

Ticket = line.Ticket[AttentionRequest, AttentionResult]


class AttentionBackend(Protocol):
    """A loaded model that shows its attention; used by one thread."""

    vocab_size: int
    num_token_types: int
    reads_source: bool
    reads_target: bool
    max_source_tokens: int
    max_target_tokens: int

    def maps(self, request: AttentionRequest) -> tuple[Maps, Maps | None]:
        """The maps of one input, and their norms where it wants them."""
        ...


class AttentionLine(line.BoundedLine[AttentionRequest, AttentionResult]):
    """Requests that wait for the one thread."""

    def take(self) -> Ticket | None:
        """The oldest ticket, which may be late; None means: stop."""
        with self._changed:
            while not self._tickets:
                if self._stopping:
                    return None
                self._changed.wait()
            ticket, _ = self._tickets.popitem(last=False)
            self._discount(ticket)
            return ticket

    def size(self) -> tuple[int, int]:
        """Waiting requests, waiting tokens."""
        with self._changed:
            return len(self._tickets), self._tokens


class _Part(NamedTuple):
    """One side of a request, and what is allowed of it."""

    name: str
    ids: tuple[int, ...] | None
    is_read: bool
    max_tokens: int


class AttentionEngine(BaseEngine[AttentionRequest, AttentionResult]):
    """Maps are drawn for people to look at, not all day: one thread runs them one by one.

    A batch would gain nothing, because the time goes into maps that grow with the square of a text, not into weights.
    """

    _line: AttentionLine

    def __init__(
        self, backend: AttentionBackend, limits: line.LineLimits | None = None, observer: Observer | None = None
    ) -> None:
        self.backend = backend
        self._observer = observer or NullObserver()
        longest = backend.reads_source * backend.max_source_tokens + backend.reads_target * backend.max_target_tokens
        attention_line = AttentionLine(limits or line.LineLimits(), longest, "input")
        self._num_requests = 0
        self._is_busy = False
        super().__init__(attention_line, [self._serve])

    def _check(self, request: AttentionRequest) -> None:
        """Refuse at the door what would stop the whole model."""
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
            _check_ids(part.name, part.ids, backend.vocab_size)
        types, num_tokens = request.token_type_ids, len(request.source_ids or ())
        if types is not None:
            if len(types) != num_tokens:
                raise ValueError(f"token_type_ids has {len(types)} numbers for {num_tokens} tokens")
            _check_ids("token_type_ids", types, max(1, backend.num_token_types))

    def stats(self) -> EngineStats:
        """`steps` are inputs that were run; there is no cache, so `max_rows` is 0."""
        requests, tokens = self._line.size()
        return EngineStats(
            waiting_requests=requests,
            waiting_tokens=tokens,
            active_rows=int(self._is_busy),
            max_rows=0,
            steps=self._num_requests,
            generated_tokens=0,
            padding_share=0.0,
            is_alive=self.is_alive,
        )

    def _serve(self) -> None:
        while (ticket := self._line.take()) is not None:
            started = time.monotonic()
            if ticket.is_late(started):
                ticket.fail_late("before it was begun")
            elif not ticket.is_settled:
                self._is_busy = True
                self._answer(ticket, started)
                self._is_busy = False

    def _answer(self, ticket: Ticket, started: float) -> None:
        queued = started - ticket.submitted
        self._observer.on_queue(queued)
        maps, norms = self.backend.maps(ticket.request)
        self._num_requests += 1
        self._observer.on_encode(1, ticket.request.num_tokens, 0)
        ticket.answer(AttentionResult(maps, norms, queued, time.monotonic() - started, ticket.request.num_tokens))


def _check_ids(name: str, ids: tuple[int, ...], size: int) -> None:
    wrong = [number for number in ids if not 0 <= number < size]
    if wrong:
        raise ValueError(f"{name} holds {wrong[0]}, allowed: 0 to {size - 1}")
