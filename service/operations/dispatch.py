"""Routes that belong to several heads: /tokenize and /decode (TEI's protocol), and /v1/models (OpenAI's)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Depends, Response
from tokenizers import Encoding

from service.errors import InputError, InvalidRequestError
from service.heads.registry import TASKS, default_model
from service.http.context import Context, ContextDep, FieldsDep, require_key
from service.http.inputs import parse_ids, parse_texts
from service.http.openai_schemas import openai_error_responses
from service.http.replies import json_response, to_json
from service.http.request_parsing import validate
from service.http.schemas import error_responses, request_body
from service.http.sizes import check_total
from service.models.base import LoadedModel
from service.models.tokenization import Truncation, bounded_text, check_ids
from service.operations.schemas import (
    DecodeRequest,
    DecodeResponse,
    ModelList,
    ModelObject,
    TokenizeRequest,
    TokenizeResponse,
)
from service.settings import NAMES_OF_NO_MODEL

router = APIRouter(tags=["tokens"])
openai_router = APIRouter(tags=["openai"], dependencies=[Depends(require_key)])

_ERRORS = error_responses(400, 401, 404, 413, 422, 429, 504)


@router.post(
    "/tokenize",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": TokenizeResponse}},
    openapi_extra=request_body(TokenizeRequest),
)
async def tokenize(fields: FieldsDep, context: ContextDep) -> Response:
    """The tokens of each text, and where they stand in it; of one text that a model is to continue, without the list
    around.
    """
    inputs = parse_texts(fields, "inputs", max_batch_size=context.settings.max_client_batch_size)
    options = validate(TokenizeRequest, fields, InputError)
    model = _choose(context, options.model or None)
    is_flat = TASKS[model.task].token_lists == "flat" and isinstance(fields.values["inputs"], str)
    prompt = model.prompt(options.prompt_name)
    texts = [prompt + text for text in inputs]
    check_total(texts, context.settings.max_text_characters, parameter="inputs")
    if not model.splits_inputs:
        for text in texts:
            bounded_text(text, model.max_input_length, Truncation(is_on=False), "inputs")

    def work() -> bytes:
        encodings = model.tokenizer.encodings(texts, options.add_special_tokens)
        lists = [_tokens(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]
        return to_json(lists[0] if is_flat else lists)

    return json_response(await context.tokenization.run(sum(map(len, texts)), work))


@router.post(
    "/decode",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": DecodeResponse}},
    openapi_extra=request_body(DecodeRequest),
)
async def decode(fields: FieldsDep, context: ContextDep) -> Response:
    """The text of each list of token ids."""
    lists = parse_ids(fields, "ids", max_batch_size=context.settings.max_client_batch_size)
    options = validate(DecodeRequest, fields, InputError)
    check_total(lists, context.settings.max_text_characters, parameter="ids")
    tokenizer = _choose(context, options.model or None).tokenizer
    for ids in lists:
        check_ids(ids, tokenizer, "ids")

    def work() -> bytes:
        return to_json([tokenizer.decode(ids, options.skip_special_tokens) for ids in lists])

    return json_response(await context.tokenization.run(sum(map(len, lists)), work))


@openai_router.get("/v1/models", responses=openai_error_responses(401, 429))
async def models(context: ContextDep) -> ModelList:
    """Every loaded model, whatever its task."""
    return ModelList(data=[_model_object(model) for model in context.registry.models])


@openai_router.get("/v1/models/{model_id:path}", responses=openai_error_responses(401, 404, 429))
async def model(model_id: str, context: ContextDep) -> ModelObject:
    """One loaded model."""
    return _model_object(context.registry.by_name(model_id))


def _model_object(model: LoadedModel) -> ModelObject:
    return ModelObject(id=model.name, created=model.loaded_at, task=model.task)


def _choose(context: Context, name: str | None) -> LoadedModel:
    """The model `name`, else the first of the one task whose protocol has these paths, else of `root_task`.

    Raises InvalidRequestError where several tasks have models, since their tokens differ.
    """
    registry = context.registry
    if name is not None and name.casefold() not in NAMES_OF_NO_MODEL:
        return registry.by_name(name)
    tasks = [task for task, models in TASKS.items() if models.token_lists and registry.of_kind(models.kind)]
    if context.settings.root_task in tasks:
        tasks = [context.settings.root_task]
    if len(tasks) > 1:
        raise InvalidRequestError(
            f"Invalid request: missing model parameter: tokens differ between the models for {', '.join(tasks)}; name "
            "one as model, or let the server's operator choose a task with POLYHEAD_ROOT_TASK",
            parameter="model",
        )
    return registry.choose(TASKS[tasks[0]].kind) if tasks else default_model(registry)


def _tokens(text: str, encoding: Encoding) -> Sequence[dict[str, Any]]:
    return [
        {"id": token_id, "text": token, "special": True, "start": None, "stop": None}
        if special
        else {"id": token_id, "text": text[start:stop], "special": False, "start": start, "stop": stop}
        for token_id, token, special, (start, stop) in zip(
            encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
        )
    ]
