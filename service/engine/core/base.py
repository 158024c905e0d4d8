"""What every engine is: a queue, threads that process it, and callers that wait for their results."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Generic

from service.engine.core.errors import ModelUnavailableError
from service.engine.core.line import BoundedLine, RequestT, ResultT, Ticket
from service.engine.core.types import EngineStats, WorkCounts

logger = logging.getLogger(__name__)


class BaseEngine(Generic[RequestT, ResultT]):
    """Admission, results, drain and shutdown of an engine whose threads each run one of `works` until the queue stops.

    When one of them raises, the engine is dead: every open request fails with ModelUnavailableError, and no other is
    admitted.
    """

    def __init__(
        self,
        line: BoundedLine[RequestT, ResultT],
        works: Sequence[Callable[[], None]],
        counts: Sequence[WorkCounts],
        max_rows: int = 0,
    ) -> None:
        self._line, self._counts, self._max_rows = line, counts, max_rows
        self._threads = [
            threading.Thread(target=self._work, args=(work,), name=f"engine-{index}", daemon=True)
            for index, work in enumerate(works)
        ]
        self._failure: BaseException | None = None
        self._open: dict[Future[ResultT], Ticket[RequestT, ResultT]] = {}
        self._open_changed = threading.Condition()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether every thread runs and none has failed."""
        return self._failure is None and all(thread.is_alive() for thread in self._threads)

    def stats(self) -> EngineStats:
        """A snapshot; `max_rows` is 0 for an engine without a cache."""
        size, total = self._line.size(), WorkCounts.total(self._counts)
        return EngineStats(
            waiting_requests=size.waiting_requests,
            waiting_tokens=size.waiting_tokens,
            active_rows=size.active_rows,
            max_rows=self._max_rows,
            steps=total.num_steps,
            generated_tokens=total.num_generated_tokens,
            padding_share=total.padding_share,
            is_alive=self.is_alive,
        )

    def submit(self, request: RequestT) -> Future[ResultT]:
        """Queue one request. Cancelling the future cancels it, even while it runs.

        Raises OverloadedError when the queue is full, RequestTooLargeError when it could never be admitted,
        ModelUnavailableError when the engine has failed or is shutting down, and ValueError for an invalid request.
        """
        return self._submit([request])[0]

    async def run(self, requests: Sequence[RequestT]) -> list[ResultT]:
        """Queue all requests or none, and await their results in this order; cancelling the coroutine cancels all.

        Raises as `submit` does, and the error of the first request to fail.
        """
        if not requests:
            return []
        futures = self._submit(requests)
        try:
            await _wait_for_all(futures)
            return [future.result() for future in futures]
        finally:  # after a failure or a cancellation the others are cancelled too
            for future in futures:
                future.cancel()

    def _check(self, request: RequestT) -> None:
        """Raise ValueError for a request that the model cannot process."""

    def _submit(self, requests: Sequence[RequestT]) -> list[Future[ResultT]]:
        for request in requests:
            self._check(request)
        # Under one lock, for `drain` and `_abandon`: a ticket is both in the queue and open, or neither.
        with self._open_changed:
            tickets = self._line.add(requests)
            self._open.update({ticket.future: ticket for ticket in tickets})
        futures = [ticket.future for ticket in tickets]
        for future in futures:
            future.add_done_callback(self._close_future)
        return futures

    def _close_future(self, future: Future[ResultT]) -> None:
        with self._open_changed:
            ticket = self._open.pop(future)
            if not self._open:
                self._open_changed.notify_all()
        if future.cancelled():
            self._line.withdraw(ticket)

    def drain(self, timeout_seconds: float) -> bool:
        """Admit no more requests and wait for those admitted; False when the timeout came first."""
        self._line.refuse("the server is shutting down")
        with self._open_changed:
            return self._open_changed.wait_for(lambda: not self._open, timeout_seconds)

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop the threads; what is still open fails with ModelUnavailableError."""
        self._line.refuse("the engine is closed")
        self._abandon(ModelUnavailableError("the engine was closed before the request was finished"))
        self._line.stop()
        end = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # whatever it was, no caller may wait for a dead loop
            logger.exception("an engine thread failed")
            self._failure = error
            self._line.refuse(f"an engine thread failed: {error}")
            self._abandon(ModelUnavailableError(f"the model failed while the request was in work: {error}"))
            self._line.stop()

    def _abandon(self, error: ModelUnavailableError) -> None:
        self._line.clear()
        with self._open_changed:
            pending = list(self._open.values())
        for ticket in pending:
            ticket.fail(error)  # a running loop then drops it, as it does cancelled ones
        self._line.note_withdrawals()


def check_loops(num_loops: int) -> None:
    """Raise ValueError for fewer loops than one."""
    if num_loops < 1:
        raise ValueError(f"num_loops is {num_loops}; it must be at least 1")


def check_ids(name: str, ids: Collection[int], size: int) -> None:
    """Raise ValueError for an id outside 0 to `size` - 1: the graph would read beyond its table of embeddings."""
    if ids and not (min(ids) >= 0 and max(ids) < size):
        wrong = next(number for number in ids if not 0 <= number < size)
        raise ValueError(f"{name} holds {wrong}, allowed: 0 to {size - 1}")


async def _wait_for_all(futures: Sequence[Future[ResultT]]) -> None:
    """Wait until every future is done; raise the error of the first to fail.

    The event loop is woken once and not once a future: a call may have hundreds, and they finish in groups.
    """
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[None] = loop.create_future()
    num_open, lock = len(futures), threading.Lock()

    def finish(error: BaseException | None) -> None:
        if finished.done():
            return
        if error is None:
            finished.set_result(None)
        else:
            finished.set_exception(error)

    def on_done(future: Future[ResultT]) -> None:
        nonlocal num_open
        if future.cancelled():
            return  # by the caller, in `run`
        with lock:
            num_open -= 1
            is_last = num_open == 0
        error = future.exception()
        if (is_last or error is not None) and not loop.is_closed():
            loop.call_soon_threadsafe(finish, error)

    for future in futures:
        future.add_done_callback(on_done)
    await finished
