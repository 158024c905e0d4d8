"""POST /similarity, TEI's protocol, which is also what huggingface_hub's sentence_similarity posts to the root."""

from __future__ import annotations

import time

import numpy as np
from fastapi import APIRouter, Request, Response

from service.errors import InputError
from service.heads.embed.embedder import EmbeddingTask
from service.heads.embed.model import EmbeddingModel
from service.heads.embed.routes import run_task, timing_headers
from service.heads.embed.schemas import SimilarityRequest, SimilarityResponse
from service.http.context import Context, read_request
from service.http.inputs import parse_texts
from service.http.plain import PlainRoute
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import error_responses, request_body
from service.models.tokenization import Truncation

router = APIRouter(tags=["embed"], route_class=PlainRoute)

_SENTENCES = "inputs.sentences"


@router.post(
    "/similarity",
    response_class=Response,
    responses={
        **error_responses(400, 401, 404, 413, 422, 424, 429, 503, 504),
        200: {"model": SimilarityResponse},
    },
    openapi_extra=request_body(SimilarityRequest),
)
async def similarity(request: Request) -> Response:
    """How similar each sentence is to the source sentence: the cosine of their vectors."""
    return await similarity_fields(request, *await read_request(request, cuts_texts=True))


async def similarity_fields(
    request: Request, fields: RequestFields, context: Context, record: RequestRecord
) -> Response:
    """The answer of /similarity for a request that has been read."""
    settings = context.settings
    options = validate(SimilarityRequest, fields, InputError)
    given = RequestFields({_SENTENCES: options.inputs.sentences}, is_json=True)
    sentences = parse_texts(given, _SENTENCES, max_batch_size=settings.max_client_batch_size)
    parameters = options.parameters
    task = EmbeddingTask(
        model=context.registry.choose(EmbeddingModel, options.model or None),
        inputs=[options.inputs.source_sentence, *sentences],
        truncation=Truncation(
            settings.auto_truncate if parameters.truncate is None else parameters.truncate,
            parameters.truncation_direction,
        ),
        parameter=_SENTENCES,
        prompt_name=parameters.prompt_name,
        deadline=record.started + settings.request_timeout_seconds,
    )
    found = await run_task(request, task, context, record)
    source, *others = found.vectors
    return json_response(to_json(np.stack(others) @ source), timing_headers(found, time.monotonic() - record.started))
