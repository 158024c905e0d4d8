"""Connections: how many there may be, how long one may take over its headers, and how large those may be.

uvicorn closes a connection that is silent after an answer. It waits for ever for a first request, for the end of
headers, and for a reader of what it has sent; a parser buffers headers of any length.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.errors import (
    HeadersTooLargeError,
    InvalidRequestError,
    ServiceError,
    SlowHeadersError,
    TooManyConnectionsError,
)
from service.http.error_handlers import connection_error

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES = 64 * 1024
MAX_PIPELINED = 16
"""Requests that wait behind one that is answered; browsers and HTTP libraries send none."""
UNREAD_SECONDS = 30.0
UNREAD_BYTES = 16 * 1024
"""So much of an answer must be read in `UNREAD_SECONDS`."""
_SECONDS_BETWEEN_WARNINGS = 10.0

Reason = Literal["too_many", "slow_headers", "large_headers", "unread"]


class ConnectionMetrics(Protocol):
    """Where closed connections are counted."""

    def on_connection_closed(self, reason: Reason) -> None: ...


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be, and how long each may wait for the end of its headers."""

    max_connections: int
    header_timeout_seconds: float


class ConnectionGuard:
    """What the connections of one server share: their limits, and the count of those that were closed."""

    def __init__(self, limits: ConnectionLimits, metrics: ConnectionMetrics) -> None:
        self.limits = limits
        self.connections: Collection[GuardedConnection] = ()
        self._metrics = metrics
        self._num_refused = 0
        self._last_warning = float("-inf")

    def protocol(self, **arguments: Any) -> GuardedConnection:
        """A connection for uvicorn, which passes the `arguments`."""
        return GuardedConnection(self, **arguments)

    def count(self, reason: Reason) -> None:
        """One connection was closed."""
        self._metrics.on_connection_closed(reason)

    def refuse(self) -> None:
        """One was refused; the log says so, but not for each of a flood."""
        self.count("too_many")
        self._num_refused += 1
        now = time.monotonic()
        if now - self._last_warning >= _SECONDS_BETWEEN_WARNINGS:
            logger.warning(
                "all %d connections are taken: %d refused since the last such line",
                self.limits.max_connections,
                self._num_refused,
            )
            self._last_warning, self._num_refused = now, 0

    @property
    def num_open(self) -> int:
        """Connections that are open now."""
        return len(self.connections)

    async def sweep(self) -> None:
        """Close those that took too long; called about once a second."""
        now = time.monotonic()
        connections = list(self.connections)
        num_slow = sum(connection.close_if_slow(now) for connection in connections)
        num_unread = sum(connection.abort_if_unread(now) for connection in connections)
        if num_slow or num_unread:
            logger.info(
                "closed %d connections that sent no whole headers in %g seconds, and %d that did not read their answer",
                num_slow,
                self.limits.header_timeout_seconds,
                num_unread,
            )


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's connection within the limits of a guard."""

    def __init__(self, guard: ConnectionGuard, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._guard = guard
        guard.connections = self.connections  # type: ignore[assignment]  # uvicorn's set of those that we made for it
        self._waits_since: float | None = None  # for the end of headers
        self._num_header_bytes = 0
        self._refusal: ServiceError | None = None
        self._unread, self._unread_since = 0, 0.0

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= self._guard.limits.max_connections:
            self.transport = transport
            self._guard.refuse()
            self._answer_and_close(TooManyConnectionsError())
            return
        super().connection_made(transport)
        self._waits_since = time.monotonic()

    def data_received(self, data: bytes) -> None:
        if self._waits_since is None and self._is_between_requests():
            # Whatever follows an answer counts as the next request, be it line breaks or the rest of a body.
            self._waits_since, self._num_header_bytes = time.monotonic(), 0
        if self._waits_since is not None:
            self._num_header_bytes += len(data)
        super().data_received(data)
        if self._waits_since is not None and self._num_header_bytes > MAX_HEADER_BYTES and not self._is_in_body():
            self._refuse(HeadersTooLargeError(MAX_HEADER_BYTES))

    def on_headers_complete(self) -> None:
        self._waits_since = None
        num_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if num_bytes > MAX_HEADER_BYTES:
            self._fail(HeadersTooLargeError(MAX_HEADER_BYTES))
        if len(self.pipeline) >= MAX_PIPELINED:
            self._fail(InvalidRequestError(f"More than {MAX_PIPELINED} requests wait behind one that is answered"))
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """The parser has failed, or `_fail` has made it fail."""
        self._refuse(self._refusal or InvalidRequestError(msg))

    def close_if_slow(self, now: float) -> bool:
        """Close a connection whose headers are not there in time; True where it was closed."""
        limit = self._guard.limits.header_timeout_seconds
        if self._waits_since is None or now - self._waits_since <= limit or self.transport.is_closing():
            return False
        self._guard.count("slow_headers")
        if self._num_header_bytes:
            self._answer_and_close(SlowHeadersError(limit))
        else:
            self.transport.close()
        return True

    def abort_if_unread(self, now: float) -> bool:
        """Drop a connection whose client does not read what it is sent; True where it was dropped."""
        unread = self.transport.get_write_buffer_size()
        if not unread or self._unread - unread >= UNREAD_BYTES or unread > self._unread:
            self._unread, self._unread_since = unread, now
            return False
        if now - self._unread_since <= UNREAD_SECONDS:
            return False
        self._guard.count("unread")
        self.transport.abort()
        return True

    def _is_in_body(self) -> bool:
        """The rest of a body that nobody wanted, because the answer was there before it."""
        cycle = self._last_cycle()
        return cycle is not None and cycle.more_body

    def _is_between_requests(self) -> bool:
        cycle = self._last_cycle()
        return cycle is None or cycle.response_complete

    def _last_cycle(self) -> RequestResponseCycle | None:
        """That of the last request; uvicorn has None for no cycle, but does not say so."""
        return self.cycle

    def _fail(self, error: ServiceError) -> None:
        """Stop the parser, in one of whose callbacks this is called."""
        self._refusal = error
        raise error

    def _refuse(self, error: ServiceError) -> None:
        if isinstance(error, HeadersTooLargeError):
            self._guard.count("large_headers")
        self._answer_and_close(error)

    def _answer_and_close(self, error: ServiceError) -> None:
        self._waits_since = None
        if self.transport.is_closing():
            return
        cycle = self._last_cycle()
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # in the middle of an answer there is no place for another
            return
        response = connection_error(error)
        head = [STATUS_LINE[response.status_code], b"connection: close\r\n"]
        head += [b"%b: %b\r\n" % header for header in response.raw_headers]
        self.transport.write(b"".join([*head, b"\r\n", bytes(response.body)]))
        self.transport.close()


def descriptor_limit() -> int | None:
    """The most files and connections that this process may have open; its soft limit is raised first.

    None where the system has no such limit.
    """
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MANY_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft


_MANY_DESCRIPTORS = 65_536
_OTHER_DESCRIPTORS = 128
"""For models, uploaded and translated files, logs and libraries."""


def allowed_connections(wanted: int, find_limit: Callable[[], int | None] = descriptor_limit) -> int:
    """`wanted`, or fewer where descriptors are few, which the log then says."""
    limit = find_limit()
    if limit is None:
        return wanted
    allowed = min(wanted, max(1, limit - _OTHER_DESCRIPTORS, limit // 2))
    if allowed < wanted:
        logger.warning(
            "at most %d connections instead of %d, because the process may open %d files: raise ulimit -n",
            allowed,
            wanted,
            limit,
        )
    return allowed
