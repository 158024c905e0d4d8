"""POST /tokenize and /decode, TEI's protocol; they work with a model of any task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Response
from tokenizers import Encoding

from service.errors import InputError
from service.inputs import parse_ids, parse_texts
from service.models import EmbeddingModel, LoadedModel, ModelRegistry
from service.replies import json_response, to_json
from service.request_parsing import validate
from service.schemas.common import error_responses, request_body
from service.schemas.embed import DecodeRequest, DecodeResponse, TokenizeRequest, TokenizeResponse
from service.services import FieldsDep, ServicesDep
from service.tokenization import Truncation, bounded_text, check_ids, find_prompt

router = APIRouter(tags=["embed"])

_ERRORS = error_responses(400, 401, 404, 413, 422, 429, 504)


@router.post(
    "/tokenize",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": TokenizeResponse}},
    openapi_extra=request_body(TokenizeRequest),
)
async def tokenize(fields: FieldsDep, services: ServicesDep) -> Response:
    """The tokens of each text, and where they stand in it."""
    inputs = parse_texts(fields, "inputs", max_batch_size=services.settings.max_client_batch_size)
    options = validate(TokenizeRequest, fields, InputError)
    model = choose_model(services.registry, options.model or None)
    prompt = prompt_of(model, options.prompt_name)
    texts = [prompt + text for text in inputs]
    if isinstance(model, EmbeddingModel):
        for text in texts:
            bounded_text(text, model.max_input_tokens, Truncation(is_on=False), "inputs")

    def work() -> bytes:
        encodings = model.tokenizer.encodings(texts, options.add_special_tokens)
        return to_json([_tokens(text, encoding) for text, encoding in zip(texts, encodings, strict=True)])

    return json_response(await services.tokenization.run(sum(map(len, texts)), work))


@router.post(
    "/decode",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": DecodeResponse}},
    openapi_extra=request_body(DecodeRequest),
)
async def decode(fields: FieldsDep, services: ServicesDep) -> Response:
    """The text of each list of token ids."""
    lists = parse_ids(fields, "ids", max_batch_size=services.settings.max_client_batch_size)
    options = validate(DecodeRequest, fields, InputError)
    tokenizer = choose_model(services.registry, options.model or None).tokenizer
    for ids in lists:
        check_ids(ids, tokenizer, "ids")

    def work() -> bytes:
        return to_json([tokenizer.decode(ids, options.skip_special_tokens) for ids in lists])

    return json_response(await services.tokenization.run(sum(map(len, lists)), work))


def choose_model(registry: ModelRegistry, name: str | None) -> LoadedModel:
    """The model called `name`, else the first for embeddings, else the first; UnknownModelError lists the names."""
    if name is not None:
        return registry.by_name(name)
    embedders = registry.of_kind(EmbeddingModel)
    return embedders[0] if embedders else registry.models[0]


def prompt_of(model: LoadedModel, name: str | None) -> str:
    """The text of a prompt; InputError where only a model for embeddings could have it."""
    if isinstance(model, EmbeddingModel):
        return find_prompt(model, name)
    if name is None:
        return ""
    raise InputError(
        f"Input validation error: `prompt_name` is set, but the model {model.name} is for the task {model.task} and "
        "has no prompts",
        parameter="prompt_name",
    )


def _tokens(text: str, encoding: Encoding) -> Sequence[dict[str, Any]]:
    return [
        {"id": token_id, "text": token, "special": True, "start": None, "stop": None}
        if special
        else {"id": token_id, "text": text[start:stop], "special": False, "start": start, "stop": stop}
        for token_id, token, special, (start, stop) in zip(
            encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
        )
    ]
