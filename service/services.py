"""What the routes need, made once for each app, and the dependencies that hand it to them."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from service.attention.attender import Attender
from service.attention.rendering import RenderPool
from service.documents import DocumentTranslator
from service.embedding import Embedder
from service.errors import ApiKeyRequiredError, InvalidApiKeyError
from service.file_store import FileStore
from service.generation.generator import TextGenerator
from service.health import HealthCheck
from service.metrics import Metrics
from service.models import ModelRegistry
from service.rate_limit import RateLimiter
from service.records import RequestRecord, request_record
from service.request_parsing import RequestFields, read_fields
from service.settings import Settings
from service.tokenization import TokenizationPool
from service.translation import Translator


@dataclass(frozen=True)
class Services:
    """Everything that lives as long as the app."""

    settings: Settings
    metrics: Metrics
    registry: ModelRegistry
    translator: Translator
    documents: DocumentTranslator
    embedder: Embedder
    generator: TextGenerator
    attender: Attender
    rendering: RenderPool
    tokenization: TokenizationPool
    files: FileStore
    limiter: RateLimiter
    health: HealthCheck


async def get_services(request: Request) -> Services:
    """What the app's lifespan has made. No plain function, which FastAPI would run in a thread."""
    services = request.app.state.services
    assert isinstance(services, Services)  # only the lifespan writes it
    return services


ServicesDep = Annotated[Services, Depends(get_services)]
RecordDep = Annotated[RequestRecord, Depends(request_record)]


async def get_fields(request: Request, services: ServicesDep, record: RecordDep) -> AsyncIterator[RequestFields]:
    """The fields of a request that may be made: from a client within its rate, with a key where one is needed.

    An uploaded file is open until the route has ended.
    """
    try:
        yield await _admit(request, services, record)
    finally:
        await request.close()


async def read_request(request: Request) -> tuple[RequestFields, Services, RequestRecord]:
    """`get_fields` and what it needs as one plain call, for routes that are called all day and take no files.

    FastAPI's own resolution of these dependencies takes longer than all else that the server does for a short input.
    """
    services, record = await get_services(request), await request_record(request)
    try:
        return await _admit(request, services, record), services, record
    finally:
        await request.close()


async def _admit(request: Request, services: Services, record: RequestRecord) -> RequestFields:
    settings = services.settings
    # Before the body is read, so that a client over its rate costs nothing more.
    services.limiter.admit(request.client.host if request.client else "")
    fields = await read_fields(
        request,
        max_part_bytes=settings.max_body_bytes,
        timeout_seconds=settings.request_timeout_seconds,
        started=record.started,
    )
    check_api_key(settings, _bearer_token(request) or fields.values.get("api_key"))
    return fields


FieldsDep = Annotated[RequestFields, Depends(get_fields)]


async def require_bearer_key(request: Request, services: ServicesDep) -> None:
    """For routes without a body: the key must be in the Authorization header."""
    check_api_key(services.settings, _bearer_token(request))


def check_api_key(settings: Settings, key: object) -> None:
    """Nothing where the server is open; ApiKeyRequiredError without a key, InvalidApiKeyError with a wrong one."""
    if not settings.api_keys:
        return
    if not key:
        raise ApiKeyRequiredError
    given = str(key).encode()
    # All are compared, each in constant time: how long it takes says nothing about any of them.
    matches = [hmac.compare_digest(given, accepted.encode()) for accepted in settings.accepted_keys]
    if not any(matches):
        raise InvalidApiKeyError


def _bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
