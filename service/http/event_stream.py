"""Streamed responses, as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.errors import ClientDisconnectedError, RequestTimeoutError
from service.http.disconnect import run_for_client
from service.http.error_handlers import error_body
from service.http.replies import to_json

logger = logging.getLogger(__name__)

SECONDS_FOR_THE_LAST_EVENT = 5.0
"""Added to the timeout of the request, for a client that reads slowly."""

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # so that proxies do not buffer the stream


class EventStream(Response):
    """Sends each of `events`, JSON values as bytes, as soon as the client takes it.

    When the client disconnects or has not read the end in time, `events` is cancelled; `close` is called in any case.
    An error after the start is the last event, in the shape of the path's protocol. `prefix` precedes each value;
    an event that has its name (`event: ...`) is sent as it is.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes],
        close: Callable[[], Awaitable[None]],
        *,
        timeout_seconds: float,
        started: float,
        prefix: bytes = b"data:",
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]  # not known yet
        self._events = events
        self._close = close
        self._timeout_seconds = timeout_seconds + SECONDS_FOR_THE_LAST_EVENT
        self._started = started
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_for_client(
                Request(scope, receive),
                self._send_all(scope, send),
                timeout_seconds=self._timeout_seconds,
                started=self._started,
            )
        except (ClientDisconnectedError, RequestTimeoutError) as error:
            # The status has been sent, and the client no longer reads.
            logger.info("a stream ended early: %s", error)
        finally:
            await self._close()

    async def _send_all(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._events) as events:
            try:
                async for event in events:
                    await self._send(event, send)
            except Exception as error:  # noqa: BLE001  # each becomes an event, as it would be a response before the start
                await self._send(to_json(error_body(scope, error)), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, event: bytes, send: Send) -> None:
        prefix = b"" if event.startswith(b"event: ") else self._prefix
        await send({"type": "http.response.body", "body": b"%b%b\n\n" % (prefix, event), "more_body": True})
