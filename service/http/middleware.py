"""What surrounds every route: request ids, the log line, metrics, security headers, and the limit on bodies.

Pure ASGI, so that responses stream and a disconnect is seen at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import BodyTooLargeError, ShuttingDownError
from service.http.context import RequestMetrics
from service.http.error_handlers import error_response
from service.http.records import RequestRecord, attach_record

access_logger = logging.getLogger("service.access")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_UNMATCHED = "unmatched"
_CLIENT_LEFT = 499
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self'{inline}; "
    "style-src 'self'{inline}; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


def _security_headers(inline: str) -> list[tuple[bytes, bytes]]:
    """As ASGI has them: names in lower case, and bytes."""
    return [
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"content-security-policy", _POLICY.format(inline=inline).encode()),
    ]


_PAGE_HEADERS = _security_headers("")
_DOCS_HEADERS = _security_headers(" 'unsafe-inline'")
_DOCS_PATHS = ("/docs", "/docs/")


def _header(scope: Scope, name: bytes) -> str:
    """The first header `name`, in lower case; "" where there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


class RequestContextMiddleware:
    """Gives each request its id and record; when it is answered, writes its log line and counts it.

    A client's own X-Request-ID is kept if it is short and harmless, else replaced.
    """

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = _header(scope, b"x-request-id")
        # No secret, so not of the system's generator, which releases the GIL.
        record = RequestRecord(given if _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}")
        attach_record(scope, record)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", record.request_id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self._finish(scope, record, status)

    def _finish(self, scope: Scope, record: RequestRecord, status: int) -> None:
        seconds = time.monotonic() - record.started
        if status >= 400 and status != _CLIENT_LEFT:  # who leaves pays for what was begun
            record.refund()
        route = getattr(scope.get("route"), "path", None) or _UNMATCHED
        self.metrics.observe_request(scope["method"], route, status, seconds)
        access_logger.info(
            "request",
            extra={
                "request_id": record.request_id,
                "method": scope["method"],
                "route": route,
                "status": status,
                "duration_ms": round(seconds * 1000, 3),
                "input_tokens": record.num_input_tokens,
                "output_tokens": record.num_output_tokens,
                "queue_ms": round(record.queue_seconds * 1000, 3),
                "inference_ms": round(record.inference_seconds * 1000, 3),
            },
        )


class RootPathMiddleware:
    """Serves the app below `root_path`, for proxies that leave this prefix on and for those that remove it.

    Outermost, so that everything within knows its own paths alone.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self.app = app
        self.root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["path"] == self.root_path:  # the links of the page are relative to its folder
                await RedirectResponse(f"{self.root_path}/")(scope, receive, send)
                return
            if scope["path"].startswith(f"{self.root_path}/"):
                scope = {**scope, "path": scope["path"].removeprefix(self.root_path)}
        await self.app(scope, receive, send)


class HeadMiddleware:
    """Answers HEAD wherever GET is answered, with the same headers; the server sends no body for it.

    Inside of all others, for which the request stays what it is.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}
        try:
            await self.app(as_get, receive, send)
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]


class UnexpectedErrorMiddleware:
    """Answers errors that no handler knows, and requests that are cancelled as the server ends.

    Innermost, so that these responses too have an id, a log line and the security headers.

    Starlette's own place for such errors is outside of all other middleware.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except (Exception, asyncio.CancelledError) as error:
            if has_started:  # too late for another answer; the server closes the connection
                raise
            # Requests are cancelled only by a server whose drain has timed out.
            cause = ShuttingDownError() if isinstance(error, asyncio.CancelledError) else error
            await error_response(scope, cause)(scope, receive, send)


class SecurityHeadersMiddleware:
    """Headers that keep browsers from guessing types, framing pages, and loading anything from elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # The page of Swagger UI starts itself with an inline script; no other page may.
        added = _DOCS_HEADERS if scope["path"] in _DOCS_PATHS else _PAGE_HEADERS

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                named = {name for name, _ in headers}
                message["headers"] = [*headers, *(header for header in added if header[0] not in named)]
            await send(message)

        await self.app(scope, receive, send_with_headers)


class BodyLimitMiddleware:
    """Refuses a body over the limit, by its declared length before anything is read, else as soon as it is exceeded.

    Starlette has a middleware of this kind, but it answers in plain text, past our error handlers.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int, max_body_bytes_by_path: dict[str, int]) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.max_body_bytes_by_path = max_body_bytes_by_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.max_body_bytes_by_path.get(scope["path"], self.max_body_bytes)
        declared = _header(scope, b"content-length")
        if declared.isdecimal() and int(declared) > limit:
            await error_response(scope, BodyTooLargeError(limit))(scope, receive, send)
            return
        received = 0

        async def receive_within_limit() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    raise BodyTooLargeError(limit)
            return message

        await self.app(scope, receive_within_limit, send)
