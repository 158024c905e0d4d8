"""What the routes need, made once for each app, and the dependencies that provide it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol, TypeVar

from fastapi import Depends, FastAPI, Request

from service.errors import ApiKeyRequiredError
from service.http.access import KEY_FIELD, Access
from service.http.records import RequestRecord, request_record
from service.http.request_parsing import RequestFields, read_fields
from service.http.sizes import SizeLimits, check_sizes
from service.models.registry import ModelRegistry
from service.settings import Settings
from service.workers import WorkerPool

T = TypeVar("T")


class RequestMetrics(Protocol):
    """Counts requests and renders the metrics."""

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        ...

    def render(self) -> bytes:
        """All figures as Prometheus' text."""
        ...


@dataclass(frozen=True)
class Context:
    """What every route may need. A request keeps the one it began with, and so one snapshot of the models.

    `own` holds what a head or an operation has built for its routes, by class.
    """

    settings: Settings
    registry: ModelRegistry
    access: Access
    tokenization: WorkerPool
    metrics: RequestMetrics
    own: Mapping[type, object] = field(default_factory=dict)

    def of(self, kind: type[T]) -> T:
        """The object of the class `kind` that a head has built."""
        found = self.own[kind]
        assert isinstance(found, kind)  # `including` files each under its class
        return found

    def including(self, *built: object) -> Context:
        """The same with what a head has built."""
        return replace(self, own={**self.own, **{type(each): each for each in built}})


def install_context(app: FastAPI, context: Context) -> None:
    """Give `context` to all requests that begin from now on."""
    app.state.context = context


def swap_registry(app: FastAPI, registry: ModelRegistry) -> None:
    """Serve `registry` from the next request on; requests that have begun keep theirs.

    The caller starts the engines of models that came, and stops those of models that went when nothing uses them.
    """
    install_context(app, replace(current_context(app), registry=registry))


def current_context(app: FastAPI) -> Context:
    """What a request that begins now gets; for use while the app's lifespan lasts."""
    context = app.state.context
    assert isinstance(context, Context)  # only install_context writes it
    return context


async def get_context(request: Request) -> Context:
    """The context of the app. Asynchronous, because FastAPI would run a plain function in a thread."""
    return current_context(request.app)


ContextDep = Annotated[Context, Depends(get_context)]
RecordDep = Annotated[RequestRecord, Depends(request_record)]


async def get_fields(request: Request, context: ContextDep, record: RecordDep) -> AsyncIterator[RequestFields]:
    """The fields of a request that may be made: from a client within its rate, with a key where one is needed.

    An uploaded file is open until the route has ended.
    """
    try:
        yield await _admit(request, context, record, key_in_body=False)
    finally:
        await request.close()


async def get_keyed_fields(request: Request, context: ContextDep, record: RecordDep) -> AsyncIterator[RequestFields]:
    """The same for a protocol that has the key among the fields of its body."""
    try:
        yield await _admit(request, context, record, key_in_body=True)
    finally:
        await request.close()


async def read_request(
    request: Request, *, key_in_body: bool = False, cuts_texts: bool = False
) -> tuple[RequestFields, Context, RequestRecord]:
    """`get_fields` and what it needs as one plain call, for the busiest routes, which take no files.

    A route that `cuts_texts` takes texts of any length that the body has room for. FastAPI's own resolution of these
    dependencies takes longer than all else that the server does for a short input.
    """
    context, record = await get_context(request), await request_record(request)
    try:
        fields = await _admit(request, context, record, key_in_body=key_in_body, cuts_texts=cuts_texts)
        return fields, context, record
    finally:
        await request.close()


async def _admit(
    request: Request, context: Context, record: RequestRecord, *, key_in_body: bool, cuts_texts: bool = False
) -> RequestFields:
    settings = context.settings
    has_key = context.access.admit(request, record)
    if not has_key and not key_in_body:
        raise ApiKeyRequiredError
    fields = await read_fields(
        request,
        max_part_bytes=settings.max_body_bytes,
        max_values=settings.max_body_values,
        timeout_seconds=settings.request_timeout_seconds,
        started=record.started,
    )
    if not has_key:
        context.access.admit_key(fields.values.get(KEY_FIELD), record)
    check_fields(fields, settings, cuts_texts=cuts_texts)
    return fields


def check_fields(fields: RequestFields, settings: Settings, *, cuts_texts: bool) -> None:
    """TextTooLongError or InvalidRequestError for fields that are larger than a request may have."""
    max_characters = settings.max_body_bytes if cuts_texts else settings.max_text_characters
    check_sizes(fields.values, SizeLimits(max_characters, settings.max_body_values))


FieldsDep = Annotated[RequestFields, Depends(get_fields)]
KeyedFieldsDep = Annotated[RequestFields, Depends(get_keyed_fields)]


async def require_key(request: Request, context: ContextDep, record: RecordDep) -> None:
    """For routes without a body."""
    if not context.access.admit(request, record):
        raise ApiKeyRequiredError


async def require_administrator(request: Request, context: ContextDep, record: RecordDep) -> None:
    """For routes without a body that tell of other clients, or change what they get."""
    if not context.access.admit(request, record, "administer"):
        raise ApiKeyRequiredError
