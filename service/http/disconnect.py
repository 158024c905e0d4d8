"""Cancels the work of a request on timeout or when its client disconnects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import Request

from service.errors import ClientDisconnectedError, RequestTimeoutError

T = TypeVar("T")

UNHEARD_SECONDS = 0.25
"""Disconnects are not listened for in shorter work: listening costs a tenth of a short call."""


async def run_for_client(
    request: Request, work: Coroutine[None, None, T], *, timeout_seconds: float, started: float
) -> T:
    """Await `work`, cancelled on timeout or when the client disconnects, which is listened for after a moment.

    The body of the request must have been read to its end: what `receive` then gives is the disconnect.
    `started` is on `time.monotonic()`'s clock, so that reading and waiting count too. When this returns or raises,
    `work` has ended.

    Raises ClientDisconnectedError, RequestTimeoutError, or what `work` raises.
    """
    task = asyncio.current_task()
    assert task is not None  # a coroutine that runs is in one
    loop = asyncio.get_running_loop()
    stop = _Stop(task)
    late = loop.call_later(
        max(0.0, started + timeout_seconds - time.monotonic()), stop.because, RequestTimeoutError(timeout_seconds)
    )
    listening = loop.call_later(UNHEARD_SECONDS, stop.listen, request)
    try:
        return await work
    except asyncio.CancelledError:
        if stop.reason is None or stop.num_others:  # cancelled by another party, as when the server ends
            raise
        raise stop.reason from None
    finally:
        late.cancel()
        listening.cancel()
        await stop.close()


class _Stop:
    """Cancels the task that it belongs to, once and with a reason."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.reason: BaseException | None = None
        self._task = task
        self._before = task.cancelling()
        self._listener: asyncio.Task[None] | None = None
        self._is_over = False

    @property
    def num_others(self) -> int:
        """How often the task was cancelled by others since its work began."""
        return self._task.cancelling() - self._before - (self.reason is not None)

    def because(self, reason: BaseException) -> None:
        """Cancel the task, unless it is being cancelled already or its work has ended."""
        if self.reason is None and not self.num_others and not self._is_over:
            self.reason = reason
            self._task.cancel()

    def listen(self, request: Request) -> None:
        """Begin to listen for the client's disconnect."""
        self._listener = asyncio.ensure_future(_client_left(request))
        self._listener.add_done_callback(self._on_heard)

    def _on_heard(self, listener: asyncio.Task[None]) -> None:
        if not listener.cancelled():
            # An error of the listener itself is a fault of the server and no disconnect.
            self.because(listener.exception() or ClientDisconnectedError())

    async def close(self) -> None:
        """The work has ended: nothing is left running, and the task is no longer marked as cancelled."""
        self._is_over = True
        if self.reason is not None:
            self._task.uncancel()
        if self._listener is not None and not self._listener.done():
            self._listener.cancel()
            await asyncio.wait({self._listener})


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
