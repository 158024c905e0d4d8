"""Continuations as answers of TGI's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.heads.generate.pieces import as_text
from service.heads.generate.schemas.tgi import GenerateParameters
from service.heads.generate.text_stream import Continuation, TextToken, TopToken

Json = dict[str, Any]


def generate_response(outputs: Sequence[Continuation], parameters: GenerateParameters, text_before: str) -> Json:
    """The answer of /generate; `outputs` are best first, `text_before` goes before each text."""
    best, *others = outputs
    answer: Json = {"generated_text": text_before + best.text}
    if parameters.details or parameters.decoder_input_details:
        answer["details"] = _details(best, parameters)
        if parameters.best_of is not None and parameters.best_of > 1:
            answer["details"]["best_of_sequences"] = [
                {"generated_text": text_before + output.text} | _details(output, parameters) for output in others
            ]
    return answer


def stream_response(
    token: TextToken,
    *,
    index: int,
    parameters: GenerateParameters,
    text: str | None,
    seed: int | None,
    num_prompt_tokens: int,
) -> Json:
    """One event of /generate_stream; `text` is the whole text, for the last one."""
    details = None
    if text is not None and parameters.details:
        details = {
            "finish_reason": token.finish_reason,
            "generated_tokens": index,
            "seed": seed,
            "input_length": num_prompt_tokens,
        }
    event: Json = {"index": index, "token": _token(token), "generated_text": text, "details": details}
    if parameters.top_n_tokens:
        event["top_tokens"] = [_top_token(top) for top in token.top_tokens]
    return event


def _details(output: Continuation, parameters: GenerateParameters) -> Json:
    details: Json = {
        "finish_reason": output.finish_reason,
        "generated_tokens": output.num_tokens,
        "seed": output.seed,
        "prefill": [
            {"id": token.token_id, "text": as_text(token.surface), "logprob": token.log_prob} for token in output.prompt
        ],
        "tokens": [_token(token) for token in output.tokens],
    }
    if parameters.top_n_tokens:
        details["top_tokens"] = [[_top_token(top) for top in token.top_tokens] for token in output.tokens]
    return details


def _token(token: TextToken) -> Json:
    """A token with its increment of the text; a special one, which has none, is spelled out."""
    text = as_text(token.surface) if token.is_special else token.text
    return {"id": token.token_id, "text": text, "logprob": token.log_prob, "special": token.is_special}


def _top_token(token: TopToken) -> Json:
    return {
        "id": token.token_id,
        "text": as_text(token.surface),
        "logprob": token.log_prob,
        "special": token.is_special,
    }
