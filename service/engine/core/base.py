"""What every engine is: a queue, threads that work it off, and callers that wait for their results."""

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
    """Admission, answers, drain and the end of an engine whose threads each run one of `works` until the line stops.

    When one of them raises, the engine is dead: every caller hears of it, and nobody is admitted any more.
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
        """Every thread runs and none has failed."""
        return self._failure is None and all(thread.is_alive() for thread in self._threads)

    def stats(self) -> EngineStats:
        """What the engine has done and holds; `max_rows` is 0 for an engine without a cache."""
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
        """Queue one request. Cancelling the future withdraws it, even while it runs.

        Raises OverloadedError when the line is full, RequestTooLargeError when it could never be admitted,
        ModelUnavailableError when the engine no longer works, and ValueError for what the model cannot take.
        """
        return self._submit([request])[0]

    async def run(self, requests: Sequence[RequestT]) -> list[ResultT]:
        """Queue all requests or none, and await their results in this order; cancelling the coroutine withdraws all.

        Raises as `submit` does, and what the first request to fail failed with.
        """
        if not requests:
            return []
        futures = self._submit(requests)
        try:
            await _wait_for_all(futures)
            return [future.result() for future in futures]
        finally:  # one that failed or a caller that left takes the others along
            for future in futures:
                future.cancel()

    def _check(self, request: RequestT) -> None:
        """Raise ValueError for a request that the model cannot take."""

    def _submit(self, requests: Sequence[RequestT]) -> list[Future[ResultT]]:
        for request in requests:
            self._check(request)
        # At once, as seen by who drains or fails what is open: a ticket is in the line and open, or neither.
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
        """Take no more requests and answer those that were taken; False when time ran out before all were."""
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
            ticket.fail(error)  # a running loop then drops it, as for a caller that left
        self._line.note_withdrawals()


def check_loops(num_loops: int) -> None:
    """Raise ValueError for a number of loops that cannot be."""
    if num_loops < 1:
        raise ValueError(f"num_loops is {num_loops}; it must be at least 1")


def check_ids(name: str, ids: Collection[int], size: int) -> None:
    """Raise ValueError for an id that has no row in its table of `size` rows, which would stop the whole model."""
    if ids and not (min(ids) >= 0 and max(ids) < size):
        wrong = next(number for number in ids if not 0 <= number < size)
        raise ValueError(f"{name} holds {wrong}, allowed: 0 to {size - 1}")


async def _wait_for_all(futures: Sequence[Future[ResultT]]) -> None:
    """Until every future is done, or the first has failed, which is raised.

    The event loop is woken once, not once for each future: a call may have hundreds, and they are done in groups.
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
            return  # by the caller itself, as it leaves
        with lock:
            num_open -= 1
            is_last = num_open == 0
        error = future.exception()
        if (is_last or error is not None) and not loop.is_closed():
            loop.call_soon_threadsafe(finish, error)

    for future in futures:
        future.add_done_callback(on_done)
    await finished
