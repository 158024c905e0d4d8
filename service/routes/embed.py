"""POST /embed and /embed_all, TEI's protocol."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from service.disconnect import run_for_client
from service.embedding import Embeddings, EmbeddingTask
from service.errors import InputError
from service.inputs import Input, parse_inputs
from service.records import RequestRecord
from service.replies import json_response, list_to_json, timing_headers, to_json
from service.request_parsing import validate
from service.schemas.common import error_responses, request_body
from service.schemas.embed import EmbedAllRequest, EmbedAllResponse, EmbedRequest, EmbedResponse
from service.services import Services, read_request
from service.tokenization import Truncation

router = APIRouter(tags=["embed"])

_ERRORS = error_responses(400, 401, 404, 413, 422, 424, 429, 503, 504)


@router.post(
    "/embed",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": EmbedResponse}},
    openapi_extra=request_body(EmbedRequest),
)
async def embed(request: Request) -> Response:
    """One vector for each input."""
    fields, services, record = await read_request(request)
    inputs = parse_inputs(fields, "inputs", max_batch_size=services.settings.max_client_batch_size)
    options = validate(EmbedRequest, fields, InputError)
    task = _task(inputs, options, services, record, normalize=options.normalize, dimensions=options.dimensions)
    embeddings = await run_task(request, task, services, record)
    return json_response(to_json(embeddings.vectors), _timings(embeddings, record))


@router.post(
    "/embed_all",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": EmbedAllResponse}},
    openapi_extra=request_body(EmbedAllRequest),
)
async def embed_all(request: Request) -> Response:
    """One vector for each token of each input, special tokens among them. They are not normalised."""
    fields, services, record = await read_request(request)
    inputs = parse_inputs(fields, "inputs", max_batch_size=services.settings.max_client_batch_size)
    task = _task(inputs, validate(EmbedAllRequest, fields, InputError), services, record, wants_tokens=True)
    embeddings = await run_task(request, task, services, record)
    return json_response(await list_to_json(embeddings.vectors), _timings(embeddings, record))


def _task(
    inputs: Sequence[Input],
    options: EmbedAllRequest,
    services: Services,
    record: RequestRecord,
    *,
    wants_tokens: bool = False,
    normalize: bool = True,
    dimensions: int | None = None,
) -> EmbeddingTask:
    settings = services.settings
    return EmbeddingTask(
        inputs=inputs,
        truncation=Truncation(
            settings.auto_truncate if options.truncate is None else options.truncate, options.truncation_direction
        ),
        parameter="inputs",
        prompt_name=options.prompt_name,
        model_name=options.model or None,
        wants_tokens=wants_tokens,
        normalize=normalize,
        dimensions=dimensions,
        deadline=record.started + settings.request_timeout_seconds,
    )


async def run_task(request: Request, task: EmbeddingTask, services: Services, record: RequestRecord) -> Embeddings:
    """The vectors, unless the client leaves or the time is over before."""
    return await run_for_client(
        request,
        services.embedder.embed(task, record),
        timeout_seconds=services.settings.request_timeout_seconds,
        started=record.started,
    )


def _timings(embeddings: Embeddings, record: RequestRecord) -> dict[str, str]:
    return timing_headers(embeddings, time.monotonic() - record.started)
