"""POST /v1/embeddings, OpenAI's protocol."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from service.errors import InputError
from service.heads.embed.embedder import Embeddings, EmbeddingTask
from service.heads.embed.model import EmbeddingModel
from service.heads.embed.routes import run_task, timing_headers
from service.heads.embed.schemas import EmbeddingsRequest, EmbeddingsResponse
from service.http.context import read_request
from service.http.inputs import parse_inputs
from service.http.openai_schemas import openai_error_responses
from service.http.plain import PlainRoute
from service.http.replies import json_response, to_base64, to_json
from service.http.request_parsing import validate
from service.http.schemas import request_body
from service.models.tokenization import Truncation

router = APIRouter(tags=["openai"], route_class=PlainRoute)

MAX_INPUTS = 2048
"""As many as OpenAI takes, which its clients send in one request."""


_RESPONSES = {
    **openai_error_responses(400, 401, 404, 413, 429, 500, 503, 504),
    200: {"model": EmbeddingsResponse},
}


# Without /v1 as TEI and infinity have it too.
@router.post(
    "/embeddings", response_class=Response, responses=_RESPONSES, openapi_extra=request_body(EmbeddingsRequest)
)
@router.post(
    "/v1/embeddings", response_class=Response, responses=_RESPONSES, openapi_extra=request_body(EmbeddingsRequest)
)
async def embeddings(request: Request) -> Response:
    """One vector of length 1 for each input."""
    fields, context, record = await read_request(request, cuts_texts=True)
    settings = context.settings
    inputs = parse_inputs(fields, "input", max_batch_size=max(MAX_INPUTS, settings.max_client_batch_size))
    options = validate(EmbeddingsRequest, fields, InputError)
    task = EmbeddingTask(
        model=context.registry.choose(EmbeddingModel, options.model or None),
        inputs=inputs,
        truncation=Truncation(settings.auto_truncate),
        parameter="input",
        dimensions=options.dimensions,
        deadline=record.started + settings.request_timeout_seconds,
    )
    found = await run_task(request, task, context, record)
    body = to_json(_answer(found, is_base64=options.encoding_format == "base64"))
    return json_response(body, timing_headers(found, time.monotonic() - record.started))


def _answer(found: Embeddings, *, is_base64: bool) -> dict[str, Any]:
    truncated = {"truncated_inputs": found.num_truncated} if found.num_truncated else {}
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "embedding": to_base64(vector) if is_base64 else vector, "index": index}
            for index, vector in enumerate(found.vectors)
        ],
        "model": found.model.name,
        "usage": {"prompt_tokens": found.num_tokens, "total_tokens": found.num_tokens} | truncated,
    }
