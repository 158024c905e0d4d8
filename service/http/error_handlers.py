"""The only place where errors become statuses and bodies, by the protocol that a path belongs to.

Three shapes leave the server: OpenAI's `{"error": {"message", "type", "param", "code"}}`, DeepL's `{"message"}`, and
`{"error": message, "error_type": kind}`, which the clients of LibreTranslate, TEI and TGI read. The protocols differ in
a few statuses too, and TEI writes its kinds in capitals: "Validation". Each head says which protocol its routers speak.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Scope

from model.tokenizer import TextCutError
from service import errors
from service.engine.core import errors as engine_errors

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """How one kind of error is answered; `message` replaces the error's own where that is not for clients."""

    status: int
    error_type: str
    message: str | None = None


ANSWERS: dict[type[Exception], Answer] = {
    errors.InvalidRequestError: Answer(400, "validation"),
    errors.InputError: Answer(422, "validation"),
    errors.EmptyInputError: Answer(400, "empty"),
    errors.TokenIdError: Answer(422, "tokenizer"),
    TextCutError: Answer(422, "tokenizer"),
    errors.InvalidApiKeyError: Answer(403, "authentication"),
    errors.MissingRightError: Answer(403, "permission"),
    errors.QuotaExceededError: Answer(429, "quota_exceeded"),
    errors.ForbiddenError: Answer(403, "forbidden"),
    errors.NotFoundError: Answer(404, "not_found"),
    errors.NotAcceptableError: Answer(406, "not_acceptable"),
    errors.BodyTooLargeError: Answer(413, "payload_too_large"),
    errors.HeadersTooLargeError: Answer(431, "headers_too_large"),
    errors.SlowHeadersError: Answer(408, "timeout"),
    errors.TooManyConnectionsError: Answer(503, "overloaded"),
    errors.SlowdownError: Answer(429, "overloaded"),
    errors.NotReadyError: Answer(503, "not_ready"),
    errors.ClientDisconnectedError: Answer(499, "client_disconnected"),
    errors.ModelOutputError: Answer(424, "backend"),
    errors.UnhealthyError: Answer(503, "unhealthy"),
    errors.ShuttingDownError: Answer(503, "unhealthy"),
    errors.RequestTimeoutError: Answer(504, "timeout"),
    errors.StorageFullError: Answer(507, "storage_full"),
    engine_errors.RequestTooLargeError: Answer(400, "validation"),
    engine_errors.OverloadedError: Answer(429, "overloaded", "Model is overloaded"),
    engine_errors.ModelUnavailableError: Answer(503, "unhealthy", "The model is not available"),
    engine_errors.InvalidOutputError: Answer(424, "backend"),
    engine_errors.DeadlineError: Answer(504, "timeout", "The request was not finished in time"),
    RequestValidationError: Answer(422, "validation"),
    Exception: Answer(500, "internal", "Internal server error"),
}

_HTTP_KINDS = {404: "not_found", 405: "method_not_allowed", 413: "payload_too_large"}

_FAULTS = {424, 500}
"""Statuses for faults of the server, which are logged with their cause."""

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def _plain_body(answer: Answer, message: str, parameter: str | None) -> dict[str, Any]:
    return {"error": message, "error_type": answer.error_type}


def _tei_body(answer: Answer, message: str, parameter: str | None) -> dict[str, Any]:
    kind = "".join(part.capitalize() for part in answer.error_type.split("_"))
    return {"error": message, "error_type": kind}


def _openai_body(answer: Answer, message: str, parameter: str | None) -> dict[str, Any]:
    default = "invalid_request_error" if answer.status < 500 else "server_error"
    kind = _OPENAI_TYPES.get(answer.status, default)
    return {"error": {"message": message, "type": kind, "param": parameter, "code": answer.error_type}}


def _message_body(answer: Answer, message: str, parameter: str | None) -> dict[str, Any]:
    return {"message": message}


@dataclass(frozen=True, kw_only=True)
class ErrorProtocol:
    """How the clients of a protocol read errors: where its answers differ from `ANSWERS`, and what its bodies hold.

    Below `prefixes` it answers for paths without a route too.
    """

    differences: Mapping[type[Exception], Answer] = field(default_factory=dict)
    body: Callable[[Answer, str, str | None], dict[str, Any]] = _plain_body
    prefixes: tuple[str, ...] = ()

    def answer(self, error: Exception) -> Answer:
        """The answer for the nearest class of `error` that has one."""
        return next(
            answers[base] for base in type(error).__mro__ for answers in (self.differences, ANSWERS) if base in answers
        )


LIBRETRANSLATE = ErrorProtocol()

TEI = ErrorProtocol(
    differences={
        errors.ApiKeyRequiredError: Answer(401, "authentication"),
        errors.InvalidApiKeyError: Answer(401, "authentication"),
        errors.UnknownModelError: Answer(404, "not_found"),
        engine_errors.RequestTooLargeError: Answer(422, "validation"),
    },
    body=_tei_body,
)

TGI = ErrorProtocol(
    differences={
        errors.InvalidRequestError: Answer(422, "validation"),
        errors.EmptyInputError: Answer(422, "validation"),
        errors.TokenIdError: Answer(422, "validation"),
        TextCutError: Answer(422, "validation"),
        errors.ApiKeyRequiredError: Answer(401, "authentication"),
        errors.InvalidApiKeyError: Answer(401, "authentication"),
        errors.UnknownModelError: Answer(404, "not_found"),
        errors.ModelOutputError: Answer(424, "generation"),
        engine_errors.InvalidOutputError: Answer(424, "generation"),
        engine_errors.RequestTooLargeError: Answer(422, "validation"),
    }
)

OURS = ErrorProtocol(
    differences={
        errors.UnknownModelError: Answer(404, "not_found"),
        engine_errors.RequestTooLargeError: Answer(422, "validation"),
    }
)
"""For paths of our own."""

OPENAI = ErrorProtocol(
    differences={
        errors.InputError: Answer(400, "validation"),
        errors.ContextLengthError: Answer(400, "context_length_exceeded"),
        errors.TokenIdError: Answer(400, "tokenizer"),
        errors.ApiKeyRequiredError: Answer(401, "invalid_api_key"),
        errors.InvalidApiKeyError: Answer(401, "invalid_api_key"),
        errors.UnknownModelError: Answer(404, "model_not_found"),
        errors.NoModelError: Answer(404, "model_not_found"),
        errors.QuotaExceededError: Answer(429, "insufficient_quota"),
        errors.ModelOutputError: Answer(500, "backend"),
        engine_errors.InvalidOutputError: Answer(500, "backend"),
        RequestValidationError: Answer(400, "validation"),
    },
    body=_openai_body,
    prefixes=("/v1/",),
)

DEEPL = ErrorProtocol(
    differences={
        errors.ApiKeyRequiredError: Answer(403, "authentication"),
        errors.TextTooLongError: Answer(413, "payload_too_large"),
        errors.QuotaExceededError: Answer(456, "quota_exceeded"),
        RequestValidationError: Answer(400, "validation"),
    },
    body=_message_body,
    prefixes=("/v2/", "/v3/"),
)
"""Its clients retry each 5xx five times: what they cannot have is a 4xx."""


HUB = ErrorProtocol(
    differences={
        errors.ApiKeyRequiredError: Answer(401, "authentication"),
        errors.InvalidApiKeyError: Answer(401, "authentication"),
    }
)
"""For paths that name no task, until it is known whose clients ask: what all that post there can read."""

_STATE = "error_protocol"


def answer_errors_as(scope: Scope, protocol: ErrorProtocol) -> None:
    """Answer the errors of the request in `scope` in `protocol` from now on, whatever its path."""
    scope.setdefault("state", {})[_STATE] = protocol


class ProtocolTable:
    """The protocol of each path; LibreTranslate's for paths without a router."""

    def __init__(self, routers: Iterable[tuple[APIRouter, ErrorProtocol]]) -> None:
        pairs = list(routers)
        self._by_path = {route.path: protocol for router, protocol in pairs for route in _routes(router)}
        self._by_prefix = {prefix: protocol for _, protocol in pairs for prefix in protocol.prefixes}

    def of(self, path: str) -> ErrorProtocol:
        """The protocol of `path`, whether there is a route or not."""
        if (found := self._by_path.get(path)) is not None:
            return found
        return next((found for prefix, found in self._by_prefix.items() if path.startswith(prefix)), LIBRETRANSLATE)


def _routes(router: APIRouter) -> list[APIRoute]:
    return [route for route in router.routes if isinstance(route, APIRoute)]


def install_error_handlers(app: FastAPI, routers: Iterable[tuple[APIRouter, ErrorProtocol]]) -> None:
    """Make every error of a route or of the framework leave in the shape that the clients of its path read."""
    app.state.protocols = ProtocolTable(routers)
    for error_class in (*ANSWERS, HTTPException):
        app.add_exception_handler(error_class, _handle)


async def _handle(request: Request, error: Exception) -> JSONResponse:
    return error_response(request.scope, error)


def error_response(scope: Scope, error: Exception) -> JSONResponse:
    """The response for `error` of the request in `scope`. Unexpected errors are logged."""
    answer, body = _describe(scope, error)
    return JSONResponse(body, status_code=answer.status, headers=_headers(error, answer.status))


def connection_error(error: Exception) -> JSONResponse:
    """The response for an `error` of a connection that has said no path yet."""
    answer = LIBRETRANSLATE.answer(error)
    body = LIBRETRANSLATE.body(answer, answer.message or str(error), None)
    return JSONResponse(body, status_code=answer.status)


def message_for_clients(error: Exception) -> str:
    """What a client may be told of an `error` of work that has outlived its request. Unexpected errors are logged."""
    answer = LIBRETRANSLATE.answer(error)
    if answer.status in _FAULTS:
        logger.error("unexpected error of a job", exc_info=error)
    return answer.message or str(error)


def error_body(scope: Scope, error: Exception) -> dict[str, Any]:
    """The body alone, for a response whose status has been sent."""
    return _describe(scope, error)[1]


def _describe(scope: Scope, error: Exception) -> tuple[Answer, dict[str, Any]]:
    path: str = scope["path"]
    protocol: ErrorProtocol = scope.get("state", {}).get(_STATE) or scope["app"].state.protocols.of(path)
    if isinstance(error, HTTPException):
        answer = Answer(error.status_code, _HTTP_KINDS.get(error.status_code, "http"), str(error.detail))
    else:
        answer = protocol.answer(error)
    if answer.status in _FAULTS:
        logger.error("unexpected error at %s", path, exc_info=error)
    if isinstance(error, RequestValidationError):
        message, parameter = _first_problem(error)
    else:
        message, parameter = answer.message or str(error), getattr(error, "parameter", None)
    return answer, protocol.body(answer, message, parameter) | _details(error)


def _details(error: Exception) -> dict[str, Any]:
    """What /health adds: the state of each model."""
    return {"status": str(error), "models": error.models} if isinstance(error, errors.UnhealthyError) else {}


def _headers(error: Exception, status: int) -> Mapping[str, str] | None:
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, HTTPException):
        return error.headers  # a 405 names the methods that are allowed
    if isinstance(error, errors.SlowdownError | engine_errors.OverloadedError):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after_seconds)))}
    return None


def _first_problem(error: RequestValidationError) -> tuple[str, str | None]:
    """The framework's own validation, in one sentence: where, what, and the value."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"] if part not in {"body", "query", "path"})
    value = errors.shown(problem.get("input"))
    return f"Input validation error: {where or 'request'}: {problem['msg']}. Given: {value}", where or None
