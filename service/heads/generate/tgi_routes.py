"""POST /generate and /generate_stream, TGI's protocol."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from service.errors import EmptyInputError, InputError, shown
from service.heads.generate.generator import TextGenerator, close_all
from service.heads.generate.model import GenerationModel
from service.heads.generate.prompts import new_seed, room_for
from service.heads.generate.sampling import check_alone, check_beam_size, check_top_tokens, sampling_options
from service.heads.generate.schemas.tgi import GenerateParameters, GenerateRequest, GenerateResponse, StreamResponse
from service.heads.generate.tasks import GenerationTask
from service.heads.generate.text_stream import TextStream
from service.heads.generate.tgi import generate_response, stream_response
from service.http.context import Context, ContextDep, FieldsDep, RecordDep
from service.http.disconnect import run_for_client
from service.http.event_stream import EventStream
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import error_responses, event_stream, request_body

router = APIRouter(tags=["generate"])

_ERRORS = error_responses(401, 404, 413, 422, 424, 429, 503, 504)


@dataclass(frozen=True, slots=True)
class _Job:
    """A request that has been checked."""

    model: GenerationModel
    task: GenerationTask
    parameters: GenerateParameters
    text_before: str
    """What goes before the generated text."""


@router.post(
    "/generate",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": GenerateResponse, **event_stream(StreamResponse)}},
    openapi_extra=request_body(GenerateRequest),
)
async def generate(request: Request, fields: FieldsDep, context: ContextDep, record: RecordDep) -> Response:
    """Continue a text. With `stream` the answer is that of /generate_stream."""
    return await _generate(request, validate(GenerateRequest, fields, InputError), context, record)


async def generate_at_root(
    request: Request, fields: RequestFields, context: Context, record: RequestRecord
) -> Response:
    """The answer of TGI's POST /: that of /generate in a list, and with the prompt unless that is declined."""
    options = validate(GenerateRequest, fields, InputError)
    if options.parameters.get("return_full_text") is None:
        options = options.model_copy(update={"parameters": {**options.parameters, "return_full_text": True}})
    return await _generate(request, options, context, record, in_list=True)


async def _generate(
    request: Request, options: GenerateRequest, context: Context, record: RequestRecord, *, in_list: bool = False
) -> Response:
    job = await _prepare(options, context, record, is_stream=options.stream)
    if options.stream:
        return await _stream(job, context, record)
    (outputs,) = await run_for_client(
        request,
        context.of(TextGenerator).generate(job.model, [job.task], record),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )
    answer = generate_response(outputs, job.parameters, job.text_before)
    if "details" in answer and job.task.prompt.is_cut:
        answer["details"]["truncated"] = True
    return json_response(to_json([answer] if in_list else answer), _headers(job, record))


@router.post(
    "/generate_stream",
    status_code=200,
    response_class=Response,
    responses={**_ERRORS, 200: {"description": "An event for each token.", **event_stream(StreamResponse)}},
    openapi_extra=request_body(GenerateRequest),
)
async def generate_stream(fields: FieldsDep, context: ContextDep, record: RecordDep) -> Response:
    """Continue a text, with an event for each token as soon as it is there."""
    options = validate(GenerateRequest, fields, InputError)
    return await _stream(await _prepare(options, context, record, is_stream=True), context, record)


async def _prepare(options: GenerateRequest, context: Context, record: RequestRecord, *, is_stream: bool) -> _Job:
    given = {name: value for name, value in options.parameters.items() if value is not None}
    parameters = validate(GenerateParameters, RequestFields(given, is_json=True), InputError)
    model = context.registry.choose(GenerationModel, options.model or None)
    _check(parameters, model, context.settings.max_best_of, is_stream=is_stream)
    if not options.inputs:
        raise EmptyInputError("inputs")
    (prompt,) = await context.of(TextGenerator).encode(
        model,
        [options.inputs],
        parameter="inputs",
        truncate=parameters.truncate,
        add_special_tokens=parameters.add_special_tokens,
    )
    do_sample = _samples(parameters)
    num_outputs = parameters.best_of or 1
    task = GenerationTask(
        prompt=prompt,
        max_new_tokens=room_for(
            prompt, parameters.max_new_tokens, model, parameter="max_new_tokens", prompt_parameter="inputs"
        ),
        sampling=sampling_options(
            do_sample=do_sample,
            seed=new_seed() if do_sample and parameters.seed is None else parameters.seed,
            temperature=parameters.temperature,
            top_k=parameters.top_k,
            top_p=parameters.top_p,
            typical_p=parameters.typical_p,
            min_p=parameters.min_p,
            repetition_penalty=parameters.repetition_penalty,
            frequency_penalty=parameters.frequency_penalty,
        ),
        stops=tuple(parameters.stop),
        keeps_stop=True,
        top_n_tokens=check_top_tokens(parameters.top_n_tokens or 0, model, parameter="top_n_tokens"),
        wants_prompt_log_probs=parameters.decoder_input_details,
        num_outputs=num_outputs,
        num_candidates=num_outputs,
        is_ranked=True,
        beam_size=parameters.beam_size or 1,
        length_penalty=1.0 if parameters.length_penalty is None else parameters.length_penalty,
        deadline=record.started + context.settings.request_timeout_seconds,
    )
    return _Job(model, task, parameters, options.inputs if parameters.return_full_text else "")


def _samples(parameters: GenerateParameters) -> bool:
    implied = (parameters.temperature, parameters.top_k, parameters.top_p, parameters.typical_p, parameters.min_p)
    return parameters.do_sample or any(value is not None for value in implied)


def _check(parameters: GenerateParameters, model: GenerationModel, max_best_of: int, *, is_stream: bool) -> None:
    """InputError for what is not supported, or does not go together."""
    for name in ("watermark", "grammar", "adapter_id"):
        if value := getattr(parameters, name):
            raise InputError(
                f"Input validation error: `{name}` is not supported by this server, leave it out. "
                f"Given: {shown(value)}",
                parameter=name,
            )
    best_of = parameters.best_of or 1
    if best_of > max_best_of:
        raise InputError(
            f"Input validation error: `best_of` must be > 0 and <= {max_best_of}. Given: {best_of}",
            parameter="best_of",
        )
    if best_of > 1 and not _samples(parameters):
        raise InputError(
            f"Input validation error: you must use sampling when `best_of` is > 1. Given: {best_of}",
            parameter="best_of",
        )
    if best_of > 1:
        check_alone("`best_of` > 1", {"seed": parameters.seed})
    if is_stream:
        check_alone(
            "streaming", {"best_of": best_of > 1 or None, "decoder_input_details": parameters.decoder_input_details}
        )
    if (parameters.beam_size or 1) > 1:
        _check_beam(parameters, model, is_stream=is_stream)


def _check_beam(parameters: GenerateParameters, model: GenerationModel, *, is_stream: bool) -> None:
    assert parameters.beam_size is not None
    check_beam_size(parameters.beam_size, model)
    names = ("temperature", "top_k", "top_p", "typical_p", "min_p", "do_sample", "repetition_penalty")
    more = ("frequency_penalty", "details", "decoder_input_details", "top_n_tokens")
    others = {name: getattr(parameters, name) for name in names + more}
    check_alone("beam search (`beam_size` > 1)", {"stream": is_stream, **others})


async def _stream(job: _Job, context: Context, record: RequestRecord) -> EventStream:
    # Admitted before the answer begins, so that a full queue is answered with its own status.
    ((stream,),) = await context.of(TextGenerator).open(job.model, [job.task], record)
    return EventStream(
        _events(stream, job),
        lambda: close_all([stream]),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )


async def _events(stream: TextStream, job: _Job) -> AsyncGenerator[bytes]:
    async for token in stream:
        yield to_json(
            stream_response(
                token,
                index=stream.num_tokens,
                parameters=job.parameters,
                text=job.text_before + stream.text if token.finish_reason else None,
                seed=stream.seed,
                num_prompt_tokens=len(job.task.prompt.token_ids),
            )
        )


def _headers(job: _Job, record: RequestRecord) -> dict[str, str]:
    """What TGI's clients read: counts, whole milliseconds, and the total in seconds once more; and whether the prompt
    was cut (ours).
    """
    total_seconds = time.monotonic() - record.started
    seconds = {
        "x-total-time": total_seconds,
        "x-queue-time": record.queue_seconds,
        "x-inference-time": record.inference_seconds,
    }
    truncated = {"x-truncated-inputs": "1"} if job.task.prompt.is_cut else {}
    return (
        truncated
        | {
            "x-compute-type": job.model.device,
            "x-compute-time": f"{total_seconds:.6f}",
            "x-compute-characters": str(len(job.task.prompt.text)),
            "x-prompt-tokens": str(record.num_input_tokens),
            "x-generated-tokens": str(record.num_output_tokens),
        }
        | {name: str(int(value * 1000)) for name, value in seconds.items()}
    )
