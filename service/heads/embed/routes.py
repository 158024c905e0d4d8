"""POST /embed and /embed_all, TEI's protocol."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from service.errors import InputError
from service.heads.embed.embedder import Embedder, Embeddings, EmbeddingTask
from service.heads.embed.model import EmbeddingModel
from service.heads.embed.schemas import EmbedAllRequest, EmbedAllResponse, EmbedRequest, EmbedResponse
from service.http.context import Context, read_request
from service.http.disconnect import run_for_client
from service.http.inputs import parse_inputs
from service.http.plain import PlainRoute
from service.http.records import RequestRecord
from service.http.replies import json_response, list_to_json, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import error_responses, request_body
from service.models.tokenization import Input, Truncation

router = APIRouter(tags=["embed"], route_class=PlainRoute)

_ERRORS = error_responses(400, 401, 404, 413, 422, 424, 429, 503, 504)


@router.post(
    "/embed",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": EmbedResponse}},
    openapi_extra=request_body(EmbedRequest),
)
async def embed(request: Request) -> Response:
    """One vector for each input."""
    return await embed_fields(request, *await read_request(request, cuts_texts=True))


async def embed_fields(request: Request, fields: RequestFields, context: Context, record: RequestRecord) -> Response:
    """The answer of /embed for a request that has been read."""
    inputs = parse_inputs(fields, "inputs", max_batch_size=context.settings.max_client_batch_size)
    options = validate(EmbedRequest, fields, InputError)
    task = _task(inputs, options, context, record, normalize=options.normalize, dimensions=options.dimensions)
    embeddings = await run_task(request, task, context, record)
    return json_response(to_json(embeddings.vectors), _timings(embeddings, record))


@router.post(
    "/embed_all",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": EmbedAllResponse}},
    openapi_extra=request_body(EmbedAllRequest),
)
async def embed_all(request: Request) -> Response:
    """One vector for each token of each input, special tokens among them. They are not normalised."""
    fields, context, record = await read_request(request, cuts_texts=True)
    inputs = parse_inputs(fields, "inputs", max_batch_size=context.settings.max_client_batch_size)
    task = _task(inputs, validate(EmbedAllRequest, fields, InputError), context, record, wants_tokens=True)
    embeddings = await run_task(request, task, context, record)
    return json_response(await list_to_json(embeddings.vectors), _timings(embeddings, record))


def _task(
    inputs: Sequence[Input],
    options: EmbedAllRequest,
    context: Context,
    record: RequestRecord,
    *,
    wants_tokens: bool = False,
    normalize: bool = True,
    dimensions: int | None = None,
) -> EmbeddingTask:
    settings = context.settings
    return EmbeddingTask(
        model=context.registry.choose(EmbeddingModel, options.model or None),
        inputs=inputs,
        truncation=Truncation(
            settings.auto_truncate if options.truncate is None else options.truncate, options.truncation_direction
        ),
        parameter="inputs",
        prompt_name=options.prompt_name,
        wants_tokens=wants_tokens,
        normalize=normalize,
        dimensions=dimensions,
        deadline=record.started + settings.request_timeout_seconds,
    )


async def run_task(request: Request, task: EmbeddingTask, context: Context, record: RequestRecord) -> Embeddings:
    """The vectors; cancelled on timeout or when the client disconnects."""
    return await run_for_client(
        request,
        context.of(Embedder).embed(task, record),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )


def _timings(embeddings: Embeddings, record: RequestRecord) -> dict[str, str]:
    return timing_headers(embeddings, time.monotonic() - record.started)


def timing_headers(embeddings: Embeddings, total_seconds: float) -> dict[str, str]:
    """The headers of TEI: counts, and times in whole milliseconds; and how many inputs were cut, if any (ours)."""
    seconds = {
        "x-total-time": total_seconds,
        "x-tokenization-time": embeddings.tokenization_seconds,
        "x-queue-time": embeddings.queue_seconds,
        "x-inference-time": embeddings.inference_seconds,
    }
    truncated = {"x-truncated-inputs": str(embeddings.num_truncated)} if embeddings.num_truncated else {}
    return (
        truncated
        | {
            "x-compute-type": embeddings.model.device,
            "x-compute-time": str(int(total_seconds * 1000)),
            "x-compute-characters": str(embeddings.num_characters),
            "x-compute-tokens": str(embeddings.num_tokens),
        }
        | {name: str(int(value * 1000)) for name, value in seconds.items()}
    )
