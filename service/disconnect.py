"""Stops the work of a request whose client has left, or whose time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import Request

from service.errors import ClientDisconnectedError, RequestTimeoutError

T = TypeVar("T")


async def run_for_client(
    request: Request, work: Coroutine[None, None, T], *, timeout_seconds: float, started: float
) -> T:
    """Await `work` while listening for the client's departure; a departure or a late hour cancels it.

    The body of the request must have been read to its end: what `receive` then gives is the disconnect.
    `started` is on `time.monotonic()`'s clock, so that reading and waiting count too. When this returns or raises,
    `work` has ended.

    Raises ClientDisconnectedError, RequestTimeoutError, or what `work` raises.
    """
    worker = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_client_left(request))
    try:
        remaining = started + timeout_seconds - time.monotonic()
        await asyncio.wait({worker, listener}, timeout=max(0.0, remaining), return_when=asyncio.FIRST_COMPLETED)
        if worker.done():
            return worker.result()
        if listener.done():
            listener.result()  # a fault of the server's own, if it was no departure
            raise ClientDisconnectedError
        raise RequestTimeoutError(timeout_seconds)
    finally:
        # Also when this coroutine is itself cancelled: nothing is left running.
        await _stop(worker)
        await _stop(listener)


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stop(task: asyncio.Future[T] | asyncio.Future[None]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio would report it as lost
