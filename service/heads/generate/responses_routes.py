"""POST /v1/responses, OpenAI's protocol: texts, and nothing that is stored."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from service.errors import InputError, quoted
from service.heads.generate.chat_routes import chat_prompt
from service.heads.generate.generator import TextGenerator, close_all
from service.heads.generate.model import GenerationModel
from service.heads.generate.openai_tasks import make_task
from service.heads.generate.prompts import room_for
from service.heads.generate.responses import ResponseWriter
from service.heads.generate.schemas.chat import ChatRequest
from service.heads.generate.schemas.responses import ResponsesRequest, ResponsesResponse
from service.heads.generate.tasks import GenerationTask
from service.http.context import Context, ContextDep, FieldsDep, RecordDep
from service.http.disconnect import run_for_client
from service.http.event_stream import EventStream
from service.http.openai_schemas import openai_error_responses
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import request_body

router = APIRouter(tags=["openai"])

_ALLOWED: dict[str, tuple[Any, ...]] = {
    "tool_choice": ("none", "auto"),
    "text": ({"format": {"type": "text"}},),
}
"""Values that ask for no more than is done anyway."""


@router.post(
    "/v1/responses",
    response_class=Response,
    responses={**openai_error_responses(400, 401, 404, 413, 429, 500, 503, 504), 200: {"model": ResponsesResponse}},
    openapi_extra=request_body(ResponsesRequest),
)
async def responses(request: Request, fields: FieldsDep, context: ContextDep, record: RecordDep) -> Response:
    """Answer a text, or in a conversation. With `stream` the answer is a stream of events."""
    options = validate(ResponsesRequest, fields, InputError)
    model = context.registry.choose(GenerationModel, options.model or None)
    task = await _task(options, model, context, record)
    writer = ResponseWriter(options, model.name)
    if options.stream:
        # Admitted before the answer begins, so that a client hears of a full queue by its status.
        ((stream,),) = await context.of(TextGenerator).open(model, [task], record)
        return EventStream(
            writer.events(stream, record),
            lambda: close_all([stream]),
            timeout_seconds=context.settings.request_timeout_seconds,
            started=record.started,
            prefix=b"event: error\ndata: ",
        )
    ((output,),) = await run_for_client(
        request,
        context.of(TextGenerator).generate(model, [task], record),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )
    return json_response(to_json(writer.finished(output.text, output.finish_reason, record)))


async def _task(
    options: ResponsesRequest, model: GenerationModel, context: Context, record: RequestRecord
) -> GenerationTask:
    _check_supported(options)
    chat = validate(
        ChatRequest,
        RequestFields(
            {"messages": _messages(options), "temperature": options.temperature, "top_p": options.top_p}, is_json=True
        ),
        InputError,
    )
    prompt = await chat_prompt(chat, model, context)
    return make_task(
        prompt,
        chat,
        model,
        max_new_tokens=room_for(
            prompt, options.max_output_tokens, model, parameter="max_output_tokens", prompt_parameter="input"
        ),
        best_of=1,
        deadline=record.started + context.settings.request_timeout_seconds,
    )


def _check_supported(options: ResponsesRequest) -> None:
    """InputError for what needs something to be stored, and for what templates and models here know nothing of."""
    for name in ("previous_response_id", "conversation", "prompt", "background", "tools", "tool_choice", "text"):
        value = getattr(options, name)
        if value and value not in _ALLOWED.get(name, ()):
            raise InputError(
                f"Invalid request: {name} is not supported, leave it out. Given: {quoted(repr(value))}", parameter=name
            )


def _messages(options: ResponsesRequest) -> list[Any]:
    """The conversation as chats have it; what is no message is left for the check of messages to refuse."""
    before = [] if not options.instructions else [{"role": "system", "content": options.instructions}]
    if isinstance(options.input, str):
        return [*before, {"role": "user", "content": options.input}]
    return [*before, *map(_message, options.input)]


def _message(item: Any) -> Any:
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        raise InputError(
            f"Invalid request: input parameter: each item must be a message. Given: {quoted(repr(item))}",
            parameter="input",
        )
    content = item.get("content")
    if isinstance(content, list):
        content = [
            {**part, "type": "text"}
            if isinstance(part, dict) and part.get("type") in ("input_text", "output_text")
            else part
            for part in content
        ]
    return {"role": item.get("role"), "content": content}
