"""The fields of a request, however it was written: JSON, urlencoded form, multipart form, or query string.

LibreTranslate's clients use all four; deep-translator sends a POST whose query string has everything and whose body
is empty. Unknown fields and explicit nulls are ignored.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from service.errors import (
    ClientDisconnectedError,
    InvalidRequestError,
    MissingParameterError,
    RequestTimeoutError,
    StorageFullError,
    is_full,
    quoted,
    shown,
)
from service.http.sizes import check_lengths, check_num_values

JSON = "application/json"
URLENCODED, MULTIPART = FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_MAX_FORM_FIELDS = 100
_INLINE_FORM_BYTES = 16 * 1024
"""A form of more is decoded in a thread: the standard library takes half a second for two megabytes of escapes."""

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The fields by name, nulls left out. `is_json` because only JSON can carry a list.

    A form and a query string may repeat a field: `values` has the last; where one does, `repeated` has all of each.
    """

    values: Mapping[str, Any]
    is_json: bool
    repeated: Mapping[str, list[Any]] = field(default_factory=dict)

    def all_of(self, name: str) -> list[Any]:
        """Every value of `name`, whose list JSON writes as one and a form by repeating it; [] where it is absent."""
        if name in self.repeated:
            return self.repeated[name]
        value = self.values.get(name)
        if isinstance(value, list):
            return value
        return [] if value is None else [value]

    def require(self, name: str) -> Any:
        """The value of `name`; MissingParameterError when it is absent, null, "" or []."""
        value = self.values.get(name)
        if value is None or value in ("", []):
            raise MissingParameterError(name)
        return value


async def read_fields(
    request: Request, *, max_part_bytes: int, max_values: int, timeout_seconds: float, started: float
) -> RequestFields:
    """Read the whole request; the body's fields win over those of the query string.

    Raises InvalidRequestError, BodyTooLargeError, RequestTimeoutError when the client is too slow in sending, or
    ClientDisconnectedError.
    """
    try:
        async with asyncio.timeout(max(0.0, started + timeout_seconds - time.monotonic())):
            return await _read_fields(request, max_part_bytes, max_values)
    except TimeoutError as error:
        raise RequestTimeoutError(timeout_seconds) from error
    except ClientDisconnect as error:
        raise ClientDisconnectedError from error


async def _read_fields(request: Request, max_part_bytes: int, max_values: int) -> RequestFields:
    query = request.query_params.multi_items() if request.scope["query_string"] else []
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == MULTIPART:
        return _fields_of(query, await _read_multipart(request, max_part_bytes))
    body = await request.body()
    if content_type == URLENCODED:
        work = asyncio.to_thread(parse_form, body) if len(body) > _INLINE_FORM_BYTES else None
        return _fields_of(query, parse_form(body) if work is None else await work)
    if content_type == JSON or content_type.endswith("+json"):
        values = parse_json_object(body, max_values) if body else {}
        given = {key: value for key, value in values.items() if value is not None}
        return RequestFields(dict(query) | given, is_json=True)
    if body:
        raise InvalidRequestError(
            f"Invalid request: Content-Type {quoted(content_type)!r} is not supported, use {', '.join((JSON, *FORMS))}"
        )
    return _fields_of(query)


def _fields_of(query: Sequence[tuple[str, Any]], form: Sequence[tuple[str, Any]] = ()) -> RequestFields:
    in_form = {name for name, _ in form}
    # Forms write every line break as CRLF (https://html.spec.whatwg.org/multipage/form-control-infrastructure.html).
    texts = ((name, value.replace("\r\n", "\n") if isinstance(value, str) else value) for name, value in form)
    pairs = [*(pair for pair in query if pair[0] not in in_form), *texts]
    last = dict(pairs)
    if len(last) == len(pairs):
        return RequestFields(last, is_json=False)
    repeated: dict[str, list[Any]] = {}
    for name, value in pairs:
        repeated.setdefault(name, []).append(value)
    return RequestFields(last, is_json=False, repeated=repeated)


async def _read_multipart(request: Request, max_part_bytes: int) -> list[tuple[str, str | UploadFile]]:
    try:
        form = await request.form(max_files=1, max_fields=_MAX_FORM_FIELDS, max_part_size=max_part_bytes)
    except HTTPException as error:
        raise InvalidRequestError(f"Invalid request: the form cannot be read: {error.detail}") from error
    except OSError as error:  # an upload of more than a megabyte goes to the temp folder
        if is_full(error):
            raise StorageFullError from error
        raise
    return form.multi_items()


def parse_form(body: bytes) -> list[tuple[str, str]]:
    """The fields, in order, of an urlencoded form; InvalidRequestError for too many, and for escapes that are none."""
    if 3 * body.count(b"%") > len(body):  # each costs an object, and no client sends a sign that begins no escape
        raise InvalidRequestError("Invalid request: the form cannot be read: it has % signs that begin no escape")
    try:
        return parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MAX_FORM_FIELDS)
    except ValueError as error:
        raise InvalidRequestError(
            f"Invalid request: the form cannot be read: more than {_MAX_FORM_FIELDS} fields"
        ) from error


def parse_json_object(body: bytes, max_values: int) -> dict[str, Any]:
    """The JSON object in `body`; InvalidRequestError for anything else, unpaired surrogates among it."""
    check_num_values(body, max_values)
    try:
        values = orjson.loads(body.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError("Invalid JSON format") from error
    if not isinstance(values, dict):
        raise InvalidRequestError("Invalid JSON format")
    return values


def validate(
    model: type[ModelT], fields: RequestFields, error_class: type[InvalidRequestError] = InvalidRequestError
) -> ModelT:
    """The fields as a `model`; `error_class` names the first that does not fit, its value and what is allowed."""
    check_lengths(model, fields.values, error_class)
    try:
        return model.model_validate(dict(fields.values))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        name = str(problem["loc"][0]) if problem["loc"] else "request"
        raise error_class(
            f"Invalid request: {name} parameter: {problem['msg']}. Given: {shown(problem['input'])}",
            parameter=name,
        ) from error


def check_text(fields: RequestFields, name: str) -> str:
    """A required field that must be a text, such as a language code."""
    value = fields.require(name)
    if not isinstance(value, str):
        raise InvalidRequestError(
            f"Invalid request: {name} parameter must be a string. Given: {shown(value)}", parameter=name
        )
    return value
