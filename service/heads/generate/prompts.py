"""Prompts to token ids, and the room in the context for their continuations."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from service.errors import ContextLengthError, EmptyInputError
from service.heads.generate.model import GenerationModel
from service.heads.generate.tasks import Prompt
from service.models.tokenization import MAX_CHARACTERS_PER_TOKEN, Input, check_ids

_SEED_BITS = 53  # exact in JSON readers that use doubles


def encode_prompts(
    model: GenerationModel,
    inputs: Sequence[Input],
    *,
    parameter: str,
    truncate: int | None = None,
    add_special_tokens: bool = True,
) -> list[Prompt]:
    """The prompts for `inputs`; token ids stay as they are. In a text the spelling of a special token is that token, as
    TGI and vLLM read it, and with `add_special_tokens` it gets those of the tokenizer's file.

    With `truncate` the last so many tokens are kept. Raises ContextLengthError for a prompt that leaves no room for a
    token of output, EmptyInputError for one of no tokens, or TokenIdError.
    """
    tokenizer = model.tokenizer
    texts = [
        _bounded(given, model, parameter) if truncate is None else given[-truncate * MAX_CHARACTERS_PER_TOKEN :]
        for given in inputs
        if isinstance(given, str)
    ]
    reader = tokenizer.reading_special_tokens
    found = iter(reader.encodings(texts, add_special_tokens, with_offsets=False) if texts else ())
    prompts = []
    for given in inputs:
        if isinstance(given, str):
            ids, text = tuple(next(found).ids), given
        else:
            if given:
                check_ids(given, tokenizer, parameter)
            ids, text = given, tokenizer.decode(given)
        kept = ids if truncate is None else ids[-truncate:]
        check_prompt_length(kept, model, parameter)
        is_cut = len(kept) < len(ids) or (truncate is not None and len(text) > truncate * MAX_CHARACTERS_PER_TOKEN)
        prompts.append(Prompt(token_ids=kept, text=text, is_cut=is_cut))
    return prompts


def check_prompt_length(ids: Sequence[int], model: GenerationModel, parameter: str) -> None:
    """EmptyInputError, or ContextLengthError for a prompt that is too long."""
    if not ids:
        raise EmptyInputError(parameter)
    if len(ids) >= model.max_total_tokens:
        raise ContextLengthError(
            f"Input validation error: `{parameter}` must have less than {model.max_total_tokens} tokens. "
            f"Given: {len(ids)}",
            parameter=parameter,
        )


def room_for(
    prompt: Prompt,
    wanted: int | None,
    model: GenerationModel,
    *,
    parameter: str,
    prompt_parameter: str,
    default: int | None = None,
) -> int:
    """The `max_new_tokens` of a prompt: what is `wanted`, else `default`, else all that the context leaves.

    A default is lowered to what the context leaves; ContextLengthError for a wish that exceeds it.
    """
    num_tokens = len(prompt.token_ids)
    room = model.max_total_tokens - num_tokens
    if wanted is None:
        return room if default is None else min(room, default)
    if wanted > room:
        raise ContextLengthError(
            f"Input validation error: `{prompt_parameter}` tokens + `{parameter}` must be <= {model.max_total_tokens}. "
            f"Given: {num_tokens} `{prompt_parameter}` tokens and {wanted} `{parameter}`",
            parameter=parameter,
        )
    return wanted


def new_seed() -> int:
    """A seed for a request without one, which the answer names so that it can be reproduced."""
    return secrets.randbits(_SEED_BITS)


def _bounded(text: str, model: GenerationModel, parameter: str) -> str:
    """`text`, unless it is too long for any tokenization, which is then not computed."""
    limit = model.max_total_tokens * MAX_CHARACTERS_PER_TOKEN
    if len(text) > limit:
        raise ContextLengthError(
            f"Input validation error: `{parameter}` must have less than {limit} characters. Given: {len(text)}",
            parameter=parameter,
        )
    return text
