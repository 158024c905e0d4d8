"""POST /v1/chat/completions, OpenAI's protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response

from service.errors import InputError, shown
from service.heads.generate.generator import TextGenerator, close_all, merge
from service.heads.generate.model import GenerationModel
from service.heads.generate.openai import Envelope, chat_logprobs, finish_reason, tokens_of_text, usage
from service.heads.generate.openai_chunks import DONE, ChatWriter
from service.heads.generate.openai_tasks import check_options, make_task
from service.heads.generate.prompts import room_for
from service.heads.generate.sampling import check_top_tokens
from service.heads.generate.schemas.chat import ChatMessage, ChatRequest, ChatResponse
from service.heads.generate.tasks import GenerationTask, Prompt
from service.heads.generate.text_stream import Continuation, TextStream
from service.http.context import Context, ContextDep, FieldsDep, RecordDep
from service.http.disconnect import run_for_client
from service.http.event_stream import EventStream
from service.http.openai_schemas import openai_error_responses
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import event_stream, request_body
from service.http.sizes import check_total

router = APIRouter(tags=["openai"])

_ALLOWED = {"tool_choice": "none", "function_call": "none", "response_format": {"type": "text"}}
"""Values that ask for the default behaviour."""


@router.post(
    "/v1/chat/completions",
    response_class=Response,
    responses={
        **openai_error_responses(400, 401, 404, 413, 429, 500, 503, 504),
        200: {"model": ChatResponse, **event_stream()},
    },
    openapi_extra=request_body(ChatRequest),
)
async def chat_completions(request: Request, fields: FieldsDep, context: ContextDep, record: RecordDep) -> Response:
    """Answer in a conversation. With `stream` the answer is a stream of chunks."""
    options = validate(ChatRequest, fields, InputError)
    model = context.registry.choose(GenerationModel, options.model or None)
    task = await _task(options, model, context, record)
    num_top = (options.top_logprobs or 0) if options.logprobs else None
    if options.stream:
        # Admitted before the answer begins, so that a full queue is answered with its own status.
        (streams,) = await context.of(TextGenerator).open(model, [task], record)
        return EventStream(
            _chunks(streams, options, Envelope("chat.completion.chunk", model.name, "chatcmpl"), num_top, record),
            lambda: close_all(streams),
            timeout_seconds=context.settings.request_timeout_seconds,
            started=record.started,
            prefix=b"data: ",
        )
    (outputs,) = await run_for_client(
        request,
        context.of(TextGenerator).generate(model, [task], record),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )
    choices = [_choice(index, output, num_top) for index, output in enumerate(outputs)]
    counts = usage(record.num_input_tokens, record.num_output_tokens)
    return json_response(to_json(Envelope("chat.completion", model.name, "chatcmpl").around(choices, usage=counts)))


async def _task(
    options: ChatRequest, model: GenerationModel, context: Context, record: RequestRecord
) -> GenerationTask:
    _check_supported(options)
    check_options(options, model, best_of=options.n, max_best_of=context.settings.max_best_of)
    if options.top_logprobs is not None and not options.logprobs:
        raise InputError(
            f"Invalid request: top_logprobs parameter goes with logprobs alone. Given: {options.top_logprobs}",
            parameter="top_logprobs",
        )
    prompt = await chat_prompt(options, model, context)
    name = "max_tokens" if options.max_completion_tokens is None else "max_completion_tokens"
    return make_task(
        prompt,
        options,
        model,
        max_new_tokens=room_for(prompt, getattr(options, name), model, parameter=name, prompt_parameter="messages"),
        best_of=options.n,
        deadline=record.started + context.settings.request_timeout_seconds,
        top_n_tokens=check_top_tokens(options.top_logprobs or 0, model, parameter="top_logprobs"),
    )


async def chat_prompt(options: ChatRequest, model: GenerationModel, context: Context) -> Prompt:
    """The prompt that the model's chat template makes of the messages; InputError where that cannot be."""
    template = context.of(TextGenerator).template(model)
    if template is None:
        raise InputError(
            f"Invalid request: the model {model.name} has no chat template, use /v1/completions", parameter="model"
        )
    messages = [_message(given).for_template() for given in options.messages]
    check_total(
        [message["content"] for message in messages], context.settings.max_text_characters, parameter="messages"
    )
    return await context.tokenization.submit(lambda: template.prompt(messages))


def _message(given: Any) -> ChatMessage:
    if not isinstance(given, dict):
        raise InputError(
            f"Invalid request: messages parameter: each must be an object. Given: {shown(given)}",
            parameter="messages",
        )
    fields = RequestFields({name: value for name, value in given.items() if value is not None}, is_json=True)
    return validate(ChatMessage, fields, InputError)


def _check_supported(options: ChatRequest) -> None:
    """InputError for features that are not supported."""
    for name in ("tools", "tool_choice", "functions", "function_call", "response_format"):
        value = getattr(options, name)
        if value and value != _ALLOWED.get(name):
            raise InputError(
                f"Invalid request: {name} is not supported, leave it out. Given: {shown(value)}", parameter=name
            )


def _choice(index: int, output: Continuation, num_top: int | None) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": output.text},
        "logprobs": None if num_top is None else chat_logprobs(tokens_of_text(output), num_top),
        "finish_reason": finish_reason(output.finish_reason),
    }


async def _chunks(
    streams: Sequence[TextStream], options: ChatRequest, envelope: Envelope, num_top: int | None, record: RequestRecord
) -> AsyncGenerator[bytes]:
    more = {"usage": None} if options.include_usage else {}
    writers = [ChatWriter(index, num_top) for index in range(len(streams))]
    async with aclosing(merge(streams)) as merged:
        async for index, token in merged:
            for choice in writers[index].write(token):
                yield to_json(envelope.around([choice], **more))
    if options.include_usage:
        yield to_json(envelope.around([], usage=usage(record.num_input_tokens, record.num_output_tokens)))
    yield DONE
