"""POST /chat_tokenize, TGI's protocol, and GET /tokenizer_info, vLLM's: what becomes of a prompt before it is read."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import APIRouter, Depends, Response

from service.errors import InputError
from service.heads.generate.chat_routes import chat_prompt
from service.heads.generate.generator import TextGenerator
from service.heads.generate.model import GenerationModel
from service.heads.generate.pieces import TokenPieces, as_text
from service.heads.generate.schemas.chat import ChatRequest, ChatTokenizeResponse, TokenizerInfo
from service.http.context import ContextDep, FieldsDep, require_key
from service.http.replies import json_response, to_json
from service.http.request_parsing import validate
from service.http.schemas import error_responses, request_body

router = APIRouter(tags=["generate"])

_ERRORS = error_responses(401, 404, 413, 422, 429, 503, 504)


@router.post(
    "/chat_tokenize",
    response_class=Response,
    responses={**_ERRORS, 200: {"model": ChatTokenizeResponse}},
    openapi_extra=request_body(ChatRequest),
)
async def chat_tokenize(fields: FieldsDep, context: ContextDep) -> Response:
    """The prompt that the model's chat template makes of messages, and its tokens."""
    options = validate(ChatRequest, fields, InputError)
    model = context.registry.choose(GenerationModel, options.model or None)
    prompt = await chat_prompt(options, model, context)
    pieces = context.of(TextGenerator).pieces(model)
    return json_response(
        to_json({"tokenize_response": list(_tokens(prompt.token_ids, pieces)), "templated_text": prompt.text})
    )


@router.get("/tokenizer_info", dependencies=[Depends(require_key)], responses=_ERRORS)
async def tokenizer_info(context: ContextDep, model: str | None = None) -> TokenizerInfo:
    """The special tokens and the chat template of the model that continues texts, as tokenizer_config.json has them."""
    chosen = context.registry.choose(GenerationModel, model or None)
    special_tokens = dict(chosen.special_tokens)
    if chosen.eos_ids:
        special_tokens.setdefault("eos_token", chosen.tokenizer.token(chosen.eos_ids[0]))
    return TokenizerInfo(
        model_max_length=chosen.max_total_tokens,
        chat_template=chosen.chat_template,
        bos_token=special_tokens.get("bos_token"),
        eos_token=special_tokens.get("eos_token"),
        pad_token=special_tokens.get("pad_token"),
        unk_token=special_tokens.get("unk_token"),
    )


def _tokens(ids: Sequence[int], pieces: TokenPieces) -> Iterator[dict[str, Any]]:
    """Each token and where it stands in the text that the tokens spell, in characters."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    position, previous = 0, None
    for token_id in ids:
        surface = pieces.surface(token_id, previous)
        start, position = position, position + len(decoder.decode(surface))
        yield {"id": token_id, "text": as_text(surface), "start": start, "stop": position}
        previous = token_id if pieces.is_plain(token_id) else previous
