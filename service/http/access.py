"""Access: rate limits and API keys."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qs

from starlette.requests import Request

from service.errors import ApiKeyRequiredError, InvalidApiKeyError
from service.http.rate_limit import RateLimiter
from service.settings import Settings

KEY_FIELD = "api_key"
_SCHEMES = (b"bearer", b"deepl-auth-key")


def admit(request: Request, settings: Settings, limiter: RateLimiter) -> bool:
    """Count the request and check its key, before anything of its body is read.

    The key is that of the Authorization header, else that of the query string. False where a key is needed and neither
    has one, so that only the body can. Raises SlowdownError or InvalidApiKeyError.
    """
    # First, so that requests with wrong keys count too.
    limiter.admit(request.client.host if request.client else "")
    if not settings.api_keys:
        return True
    key = _header_key(request) or _query_key(request)
    if not key:
        return False
    _check(key, settings)
    return True


def check_key(key: object, settings: Settings) -> None:
    """ApiKeyRequiredError without a key, InvalidApiKeyError with one that is not the server's."""
    if not key:
        raise ApiKeyRequiredError
    _check(str(key).encode(), settings)


def _check(given: bytes, settings: Settings) -> None:
    # All are compared, each in constant time, so that the time reveals nothing about the keys.
    matches = [hmac.compare_digest(given, form) for accepted in settings.accepted_keys for form in _spellings(accepted)]
    if not any(matches):
        raise InvalidApiKeyError


def _spellings(key: str) -> set[bytes]:
    """The bytes that clients send for a key. Headers have no encoding: most send UTF-8, some Latin-1."""
    try:
        return {key.encode(), key.encode("latin-1")}
    except UnicodeEncodeError:
        return {key.encode()}


def _header_key(request: Request) -> bytes:
    value = next((value for name, value in request.scope["headers"] if name == b"authorization"), b"")
    scheme, _, token = value.partition(b" ")
    return bytes(token.strip()) if scheme.lower() in _SCHEMES else b""


def _query_key(request: Request) -> bytes:
    query = request.scope["query_string"]
    if KEY_FIELD.encode() not in query:
        return b""
    return next(iter(parse_qs(query.decode("latin-1")).get(KEY_FIELD, ())), "").encode()
