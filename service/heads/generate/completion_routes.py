"""POST /v1/completions, OpenAI's protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from fastapi import APIRouter, Request, Response

from service.errors import InputError, check_num_values, shown
from service.heads.generate.generator import TextGenerator, close_all, merge
from service.heads.generate.model import GenerationModel
from service.heads.generate.openai import Envelope, completion_choice, tokens_of_text, usage
from service.heads.generate.openai_chunks import DONE, CompletionWriter
from service.heads.generate.openai_tasks import check_options, make_task
from service.heads.generate.prompts import room_for
from service.heads.generate.sampling import check_top_tokens
from service.heads.generate.schemas.completions import CompletionRequest, CompletionResponse
from service.heads.generate.tasks import GenerationTask
from service.heads.generate.text_stream import TextStream
from service.http.context import Context, ContextDep, FieldsDep, RecordDep
from service.http.disconnect import run_for_client
from service.http.event_stream import EventStream
from service.http.inputs import parse_inputs
from service.http.openai_schemas import openai_error_responses
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import event_stream, request_body

router = APIRouter(tags=["openai"])

_DEFAULT_MAX_TOKENS = 16


@router.post(
    "/v1/completions",
    response_class=Response,
    responses={
        **openai_error_responses(400, 401, 404, 413, 429, 500, 503, 504),
        200: {"model": CompletionResponse, **event_stream(CompletionResponse)},
    },
    openapi_extra=request_body(CompletionRequest),
)
async def completions(request: Request, fields: FieldsDep, context: ContextDep, record: RecordDep) -> Response:
    """Continue texts. With `stream` the answer is a stream of chunks."""
    options = validate(CompletionRequest, fields, InputError)
    model = context.registry.choose(GenerationModel, options.model or None)
    tasks = await _tasks(fields, options, model, context, record)
    envelope = Envelope("text_completion", model.name, "cmpl")
    if options.stream:
        # Admitted before the answer begins, so that a full queue is answered with its own status.
        opened = await context.of(TextGenerator).open(model, tasks, record)
        streams = [stream for of_task in opened for stream in of_task]
        return EventStream(
            _chunks(streams, tasks, options, envelope, record),
            lambda: close_all(streams),
            timeout_seconds=context.settings.request_timeout_seconds,
            started=record.started,
            prefix=b"data: ",
        )
    found = await run_for_client(
        request,
        context.of(TextGenerator).generate(model, tasks, record),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )
    choices = [
        completion_choice(
            number * options.n + place,
            output.text,
            output.finish_reason,
            tokens_of_text(output),
            prompt=task.prompt,
            scored=output.prompt,
            echoes=options.echo,
            num_logprobs=options.logprobs,
        )
        for number, (task, outputs) in enumerate(zip(tasks, found, strict=True))
        for place, output in enumerate(outputs)
    ]
    counts = usage(record.num_input_tokens, record.num_output_tokens)
    return json_response(to_json(envelope.around(choices, usage=counts)))


async def _tasks(
    fields: RequestFields,
    options: CompletionRequest,
    model: GenerationModel,
    context: Context,
    record: RequestRecord,
) -> list[GenerationTask]:
    settings = context.settings
    if options.suffix:
        raise InputError(
            "Invalid request: suffix is not supported, texts can only be continued at their end. "
            f"Given: {shown(options.suffix)}",
            parameter="suffix",
        )
    best_of = options.n if options.best_of is None else options.best_of
    check_options(options, model, best_of=best_of, max_best_of=settings.max_best_of)
    if options.max_tokens == 0 and not options.echo:
        raise InputError(
            "Invalid request: max_tokens parameter is 0, which goes with echo alone", parameter="max_tokens"
        )
    num_top = check_top_tokens(options.logprobs or 0, model, parameter="logprobs")
    inputs = parse_inputs(fields, "prompt", max_batch_size=settings.max_client_batch_size)
    prompts = await context.of(TextGenerator).encode(
        model, inputs, parameter="prompt", add_special_tokens=options.add_special_tokens
    )
    if options.logprobs is not None:
        num_echoed = sum(len(prompt.token_ids) for prompt in prompts) if options.echo else 0
        num_tokens = options.n * (num_echoed + len(prompts) * (options.max_tokens or _DEFAULT_MAX_TOKENS))
        check_num_values(num_tokens * (1 + num_top), settings.max_answer_values, parameter="prompt")
    return [
        make_task(
            prompt,
            options,
            model,
            max_new_tokens=room_for(
                prompt,
                options.max_tokens,
                model,
                parameter="max_tokens",
                prompt_parameter="prompt",
                default=_DEFAULT_MAX_TOKENS,
            ),
            best_of=best_of,
            deadline=record.started + settings.request_timeout_seconds,
            top_n_tokens=num_top,
            # With nothing to generate, the prompt is all that can run.
            wants_prompt_log_probs=options.echo and (options.logprobs is not None or options.max_tokens == 0),
        )
        for prompt in prompts
    ]


async def _chunks(
    streams: Sequence[TextStream],
    tasks: Sequence[GenerationTask],
    options: CompletionRequest,
    envelope: Envelope,
    record: RequestRecord,
) -> AsyncGenerator[bytes]:
    more = {"usage": None} if options.include_usage else {}
    writers = [
        CompletionWriter(index, stream, tasks[index // options.n].prompt, options.echo, options.logprobs)
        for index, stream in enumerate(streams)
    ]
    async with aclosing(merge(streams)) as merged:
        async for index, token in merged:
            if (choice := writers[index].write(token)) is not None:
                yield to_json(envelope.around([choice], **more))
    for writer in writers:
        if (choice := writer.finish()) is not None:
            yield to_json(envelope.around([choice], **more))
    if options.include_usage:
        yield to_json(envelope.around([], usage=usage(record.num_input_tokens, record.num_output_tokens)))
    yield DONE
