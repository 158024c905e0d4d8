"""The engine of one model: a waiting line, and one or more loops that work it off."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from service.engine.backend import Backend
from service.engine.errors import ModelUnavailableError
from service.engine.loop import Loop
from service.engine.observer import NullObserver, Observer
from service.engine.types import EngineStats, GenerationResult, InferenceRequest
from service.engine.waiting import EngineLimits, Ticket, WaitingLine

logger = logging.getLogger(__name__)

SHORT_CAPACITIES = (64, 256)
"""Sequences up to these lengths have tables of their own, so that one long text does not slow thirty short ones."""


class Engine:
    """Continuous batching for one model.

    `num_loops` threads share the line and the model's weights. On a processor, several loops of one thread each usually
    finish more than one loop of several threads.
    """

    def __init__(
        self,
        backend: Backend,
        limits: EngineLimits | None = None,
        num_loops: int = 1,
        observer: Observer | None = None,
        capacities: Sequence[int] = SHORT_CAPACITIES,
    ) -> None:
        self.limits = limits or EngineLimits()
        if num_loops < 1:
            raise ValueError(f"num_loops is {num_loops}; it must be at least 1")
        self.backend = backend
        self._line = WaitingLine(self.limits, num_loops, backend.max_source_tokens)
        longest = max(backend.max_source_tokens, backend.max_target_tokens)
        tables = [capacity for capacity in capacities if capacity < longest] + [longest]
        watcher = observer or NullObserver()
        self._loops = [Loop(index, backend, self._line, self.limits, tables, watcher) for index in range(num_loops)]
        self._threads = [
            threading.Thread(target=self._work, args=(loop,), name=f"engine-{index}", daemon=True)
            for index, loop in enumerate(self._loops)
        ]
        self._failure: BaseException | None = None
        self._open: dict[Future[GenerationResult], Ticket] = {}
        self._open_changed = threading.Condition()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, request: InferenceRequest) -> Future[GenerationResult]:
        """Queue one request. Cancelling the future withdraws it, even while it runs.

        Raises OverloadedError when the line is full, RequestTooLargeError when it could never be admitted, and
        ModelUnavailableError when the engine no longer works.
        """
        return self._submit([request])[0].future

    def _submit(self, requests: Sequence[InferenceRequest]) -> list[Ticket]:
        longest = self.backend.max_target_tokens
        for request in requests:
            if request.options.max_new_tokens > longest:
                raise ValueError(f"max_new_tokens is {request.options.max_new_tokens}, allowed: 1 to {longest}")
            if 2 * request.options.beam_size > self.backend.num_candidates and request.options.beam_size > 1:
                limit = self.backend.num_candidates // 2
                raise ValueError(f"beam_size is {request.options.beam_size}, allowed: 1 to {limit}")
        # At once, as seen by who drains or fails what is open: a ticket is in the line and open, or neither.
        with self._open_changed:
            tickets = self._line.add(requests)
            self._open.update({ticket.future: ticket for ticket in tickets})
        for ticket in tickets:
            ticket.future.add_done_callback(self._close_future)
        return tickets

    def _close_future(self, future: Future[GenerationResult]) -> None:
        with self._open_changed:
            ticket = self._open.pop(future)
            self._open_changed.notify_all()
        if future.cancelled():
            self._line.withdraw(ticket)

    async def run(self, requests: Sequence[InferenceRequest]) -> list[GenerationResult]:
        """Queue all requests or none, and await them; cancelling the coroutine withdraws them all."""
        if not requests:
            return []
        futures = [ticket.future for ticket in self._submit(requests)]
        try:
            return await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))
        finally:  # one that failed or a caller that left takes the others along
            for future in futures:
                future.cancel()

    def stats(self) -> EngineStats:
        requests, tokens, active_rows = self._line.size()
        padded = sum(loop.num_padded_tokens for loop in self._loops)
        real = sum(loop.num_source_tokens for loop in self._loops)
        return EngineStats(
            waiting_requests=requests,
            waiting_tokens=tokens,
            active_rows=active_rows,
            max_rows=self.limits.max_rows * len(self._loops),
            steps=sum(loop.num_steps for loop in self._loops),
            generated_tokens=sum(loop.num_generated_tokens for loop in self._loops),
            padding_share=padded / (padded + real) if padded else 0.0,
            is_alive=self._failure is None and all(thread.is_alive() for thread in self._threads),
        )

    def drain(self, timeout_seconds: float) -> bool:
        """Take no more requests and answer those that were taken; False when time ran out before all were."""
        self._line.refuse("the server is shutting down")
        with self._open_changed:
            return self._open_changed.wait_for(lambda: not self._open, timeout_seconds)

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop the loops; what is still open fails with ModelUnavailableError."""
        self._line.refuse("the engine is closed")
        self._abandon(ModelUnavailableError("the engine was closed before the request was finished"))
        self._line.stop()
        end = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))

    def _work(self, loop: Loop) -> None:
        try:
            loop.run()
        except BaseException as error:  # whatever it was, nobody may wait for a dead loop
            logger.exception("the engine's loop died")
            self._failure = error
            self._line.refuse(f"the model's loop died: {error}")
            self._abandon(ModelUnavailableError(f"the model failed while the request was in work: {error}"))
            self._line.stop()

    def _abandon(self, error: ModelUnavailableError) -> None:
        self._line.clear()
        with self._open_changed:
            pending = list(self._open.values())
        for ticket in pending:
            ticket.fail(error)  # a running loop then drops its rows, as for a caller that left
