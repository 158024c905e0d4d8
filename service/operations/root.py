"""Paths that name no task: /, /invocations (SageMaker) and /vertex (Vertex AI).

Clients of TGI, TEI and Hugging Face post to the base URL of a server, because such a server has one model. Here the
body says what is wanted: each head knows the bodies that are its own (`RootAnswer`). A body that fits several is for
the one whose model is loaded, else for the task of `POLYHEAD_ROOT_TASK`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from service.errors import InputError, InvalidRequestError, NotFoundError, SettingsError, quoted
from service.heads.head import RootAnswer
from service.heads.registry import HEADS
from service.http.context import Context, check_fields, get_context, read_request
from service.http.error_handlers import answer_errors_as
from service.http.plain import PlainRoute
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields
from service.http.schemas import error_responses
from service.models.registry import ModelRegistry
from service.operations import pages
from service.operations.health import health_response
from service.settings import Settings
from service.workers import run_together

router = APIRouter(tags=["root"], route_class=PlainRoute)

_ERRORS = error_responses(400, 401, 404, 413, 422, 424, 429, 503, 504)
_ANSWERS: tuple[RootAnswer, ...] = tuple(answer for head in HEADS for answer in head.root)


def _has_parameter(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    def found(fields: Mapping[str, Any]) -> bool:
        parameters = fields.get("parameters")
        return isinstance(parameters, dict) and any(parameters.get(name) is not None for name in names)

    return found


_NOT_SERVED: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("reranking", lambda fields: "query" in fields and "texts" in fields),
    ("zero-shot classification", _has_parameter("candidate_labels")),
    ("question answering", lambda fields: isinstance(given := fields.get("inputs"), dict) and "question" in given),
    ("token classification", _has_parameter("aggregation_strategy", "ignore_labels", "stride")),
    ("text classification", _has_parameter("function_to_apply")),
    ("filling masks", _has_parameter("targets")),
)
"""What clients of Hugging Face ask for and no head does."""


def check_root_task(settings: Settings) -> None:
    """SettingsError where `root_task` is none."""
    tasks = sorted({answer.task for answer in _ANSWERS if answer.task is not None})
    if settings.root_task and settings.root_task not in tasks:
        raise SettingsError(
            (f"POLYHEAD_ROOT_TASK (--root-task) is {settings.root_task!r}, allowed: {', '.join(tasks)}",)
        )


def choose_answer(fields: Mapping[str, Any], registry: ModelRegistry, settings: Settings) -> RootAnswer:
    """Whose the body `fields` is.

    Raises NotFoundError for a task that no head does, InvalidRequestError where several would fit, or none.
    """
    if (claimed := next((answer for answer in _ANSWERS if answer.claims(fields)), None)) is not None:
        return claimed
    for task, is_asked in _NOT_SERVED:
        if is_asked(fields):
            raise NotFoundError(f"The body asks for {task}, which this server does not do")
    named = registry.find(fields.get("model"))
    fitting = [
        answer
        for answer in _ANSWERS
        if answer.fits(fields) and (registry.of_kind(answer.kind) if named is None else isinstance(named, answer.kind))
    ]
    if len(fitting) > 1:
        fitting = [answer for answer in fitting if answer.task == settings.root_task] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise InvalidRequestError(
            "Invalid request: the path names no task, and no loaded model answers such a body. Given are: "
            f"{quoted(', '.join(fields)) or 'no fields'}"
        )
    tasks = ", ".join(str(answer.task) for answer in fitting)
    raise InvalidRequestError(
        f"Invalid request: the path names no task, and the body fits several ({tasks}): post to a path of one of them, "
        "or let the server's operator choose one with POLYHEAD_ROOT_TASK"
    )


async def _answer(request: Request, fields: RequestFields, context: Context, record: RequestRecord) -> Response:
    chosen = choose_answer(fields.values, context.registry, context.settings)
    answer_errors_as(request.scope, chosen.protocol)
    check_fields(fields, context.settings, cuts_texts=chosen.cuts_texts)
    return await chosen.answer(request, fields, context, record)


@router.post("/", response_class=Response, responses=_ERRORS)
@router.post("/invocations", response_class=Response, responses=_ERRORS)
async def root(request: Request) -> Response:
    """What the body asks for: the body and the answer of TGI's, TEI's and Hugging Face's servers at their root."""
    fields, context, record = await read_request(request, cuts_texts=True)
    return await _answer(request, fields, context, record)


@router.post("/vertex", response_class=Response, responses=_ERRORS)
async def vertex(request: Request) -> Response:
    """The same for each of `instances`: `{"predictions": [...]}`."""
    fields, context, record = await read_request(request, cuts_texts=True)
    instances = fields.values.get("instances")
    limit = context.settings.max_client_batch_size
    if not isinstance(instances, list) or not 0 < len(instances) <= limit:
        raise InvalidRequestError(
            f"Invalid request: instances parameter must be a list of 1 to {limit} objects. "
            f"Given: {quoted(repr(instances))}",
            parameter="instances",
        )
    predictions = await run_together([_prediction(request, each, context, record) for each in instances])
    return json_response(to_json({"predictions": predictions}))


async def _prediction(request: Request, instance: Any, context: Context, record: RequestRecord) -> Any:
    if not isinstance(instance, dict) or instance.get("stream"):
        raise InputError(
            "Invalid request: instances parameter: each must be an object without stream. "
            f"Given: {quoted(repr(instance))}",
            parameter="instances",
        )
    given = {name: value for name, value in instance.items() if value is not None}
    chosen = choose_answer(given, context.registry, context.settings)
    check_fields(RequestFields(given, is_json=True), context.settings, cuts_texts=chosen.cuts_texts)
    response = await chosen.answer(request, RequestFields(given, is_json=True), context, record)
    return chosen.prediction(json.loads(bytes(response.body)))


@router.get("/", response_class=Response, include_in_schema=False)
async def page_or_health(request: Request) -> Response:
    """The page for a browser, and /health for those who do not ask for HTML, as clients of TGI and TEI do."""
    if "text/html" in request.headers.get("accept", ""):
        response: Response = pages.page()
    else:
        response = await health_response(await get_context(request), with_details=False)
    response.headers["Vary"] = "Accept"
    return response
