"""The only place where errors become statuses and bodies.

Two shapes leave the server: OpenAI's `{"error": {"message", "type", "param", "code"}}` under /v1/, and
`{"error": message, "error_type": kind}` everywhere else, which the clients of LibreTranslate, TEI and TGI read. The
protocols differ in a few statuses too, and TEI writes its kinds in capitals: "Validation".
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from service import errors
from service.engine import errors as engine_errors
from service.files import DocumentError

logger = logging.getLogger(__name__)

OPENAI_PREFIX = "/v1/"
TEI_PATHS = frozenset({"/embed", "/embed_all", "/tokenize", "/decode"})
TGI_PATHS = frozenset({"/generate", "/generate_stream"})
ATTENTION_PATH = "/attention"


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
    errors.InvalidApiKeyError: Answer(403, "authentication"),
    errors.NotFoundError: Answer(404, "not_found"),
    errors.NotAcceptableError: Answer(406, "not_acceptable"),
    errors.BodyTooLargeError: Answer(413, "payload_too_large"),
    errors.SlowdownError: Answer(429, "overloaded"),
    errors.ClientDisconnectedError: Answer(499, "client_disconnected"),
    errors.ModelOutputError: Answer(424, "backend"),
    errors.UnhealthyError: Answer(503, "unhealthy"),
    errors.ShuttingDownError: Answer(503, "unhealthy"),
    errors.RequestTimeoutError: Answer(504, "timeout"),
    engine_errors.RequestTooLargeError: Answer(400, "validation"),
    engine_errors.OverloadedError: Answer(429, "overloaded", "Model is overloaded"),
    engine_errors.ModelUnavailableError: Answer(503, "unhealthy", "The model is not available"),
    engine_errors.InvalidOutputError: Answer(424, "backend"),
    engine_errors.DeadlineError: Answer(504, "timeout", "The request was not finished in time"),
    DocumentError: Answer(400, "validation"),
    RequestValidationError: Answer(422, "validation"),
    Exception: Answer(500, "internal", "Internal server error"),
}

TEI_ANSWERS: dict[type[Exception], Answer] = {
    errors.ApiKeyRequiredError: Answer(401, "authentication"),
    errors.InvalidApiKeyError: Answer(401, "authentication"),
    errors.UnknownModelError: Answer(404, "not_found"),
    engine_errors.RequestTooLargeError: Answer(422, "validation"),
}
"""Where TEI's protocol differs from `ANSWERS`."""

TGI_ANSWERS: dict[type[Exception], Answer] = {
    errors.InvalidRequestError: Answer(422, "validation"),
    errors.EmptyInputError: Answer(422, "validation"),
    errors.TokenIdError: Answer(422, "validation"),
    errors.ApiKeyRequiredError: Answer(401, "authentication"),
    errors.InvalidApiKeyError: Answer(401, "authentication"),
    errors.UnknownModelError: Answer(404, "not_found"),
    errors.ModelOutputError: Answer(424, "generation"),
    engine_errors.InvalidOutputError: Answer(424, "generation"),
    engine_errors.RequestTooLargeError: Answer(422, "validation"),
}
"""Where TGI's protocol differs from `ANSWERS`."""

ATTENTION_ANSWERS: dict[type[Exception], Answer] = {
    errors.UnknownModelError: Answer(404, "not_found"),
    engine_errors.RequestTooLargeError: Answer(422, "validation"),
}
"""Where our own protocol differs from `ANSWERS`, which LibreTranslate's clients know."""

OPENAI_ANSWERS: dict[type[Exception], Answer] = {
    errors.InputError: Answer(400, "validation"),
    errors.TokenIdError: Answer(400, "tokenizer"),
    errors.ApiKeyRequiredError: Answer(401, "invalid_api_key"),
    errors.InvalidApiKeyError: Answer(401, "invalid_api_key"),
    errors.UnknownModelError: Answer(404, "model_not_found"),
    errors.NoModelError: Answer(404, "model_not_found"),
    errors.ModelOutputError: Answer(500, "backend"),
    engine_errors.InvalidOutputError: Answer(500, "backend"),
    RequestValidationError: Answer(400, "validation"),
}
"""Where OpenAI's protocol differs from `ANSWERS`."""

_HTTP_KINDS = {404: "not_found", 405: "method_not_allowed", 413: "payload_too_large"}

_FAULTS = {424, 500}
"""Statuses for what is the server's own fault, and is logged with its cause."""

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def install_error_handlers(app: FastAPI) -> None:
    """Make every error that a route raises, and those of the framework, leave in one of our two shapes."""
    for error_class in (*ANSWERS, HTTPException):
        app.add_exception_handler(error_class, _handle)


async def _handle(request: Request, error: Exception) -> JSONResponse:
    return error_response(request.url.path, error)


def error_response(path: str, error: Exception) -> JSONResponse:
    """The response for `error`, in the shape that the clients of `path` read. Unexpected errors are logged."""
    answer, body = _describe(path, error)
    return JSONResponse(body, status_code=answer.status, headers=_headers(error, answer.status))


def error_body(path: str, error: Exception) -> dict[str, Any]:
    """The same without a status, for an answer that has begun and cannot be taken back."""
    return _describe(path, error)[1]


def _describe(path: str, error: Exception) -> tuple[Answer, dict[str, Any]]:
    if isinstance(error, HTTPException):
        answer = Answer(error.status_code, _HTTP_KINDS.get(error.status_code, "http"), str(error.detail))
    else:
        answers = {**ANSWERS, **_differences(path)}
        answer = next(answers[base] for base in type(error).__mro__ if base in answers)
    if answer.status in _FAULTS:
        logger.error("unexpected error at %s", path, exc_info=error)
    if isinstance(error, RequestValidationError):
        message, parameter = _first_problem(error)
    else:
        message, parameter = answer.message or str(error), getattr(error, "parameter", None)
    return answer, _body(path, answer, message, parameter) | _details(error)


def _differences(path: str) -> Mapping[type[Exception], Answer]:
    if path.startswith(OPENAI_PREFIX):
        return OPENAI_ANSWERS
    if path in TGI_PATHS:
        return TGI_ANSWERS
    if path == ATTENTION_PATH:
        return ATTENTION_ANSWERS
    return TEI_ANSWERS if path in TEI_PATHS else {}


def _body(path: str, answer: Answer, message: str, parameter: str | None) -> dict[str, Any]:
    if not path.startswith(OPENAI_PREFIX):
        kind = _camel_case(answer.error_type) if path in TEI_PATHS else answer.error_type
        return {"error": message, "error_type": kind}
    default = "invalid_request_error" if answer.status < 500 else "server_error"
    kind = _OPENAI_TYPES.get(answer.status, default)
    return {"error": {"message": message, "type": kind, "param": parameter, "code": answer.error_type}}


def _camel_case(kind: str) -> str:
    return "".join(part.capitalize() for part in kind.split("_"))


def _details(error: Exception) -> dict[str, Any]:
    """What /health adds, so that an operator sees which model is at fault."""
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
    value = errors.quoted(repr(problem.get("input")))
    return f"Input validation error: {where or 'request'}: {problem['msg']}. Given: {value}", where or None
