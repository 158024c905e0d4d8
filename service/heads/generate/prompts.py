"""Prompts to token ids, and the room in the context for their continuations."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from service.errors import EmptyInputError, InputError
from service.heads.generate.model import GenerationModel
from service.heads.generate.tasks import Prompt
from service.models.tokenization import MAX_CHARACTERS_PER_TOKEN, Input, check_ids

_SEED_BITS = 53  # exact in JSON readers that use doubles


def encode_prompts(
    model: GenerationModel, inputs: Sequence[Input], *, parameter: str, truncate: int | None = None
) -> list[Prompt]:
    """The prompts for `inputs`; a text gets the special tokens of the tokenizer's file, token ids stay as they are.

    With `truncate` the last so many tokens are kept. Raises InputError for a prompt that leaves no room for a token of
    output, EmptyInputError for one of no tokens, or TokenIdError.
    """
    tokenizer = model.tokenizer
    texts = [
        _bounded(given, model, parameter) if truncate is None else given[-truncate * MAX_CHARACTERS_PER_TOKEN :]
        for given in inputs
        if isinstance(given, str)
    ]
    found = iter(tokenizer.encodings(texts, with_offsets=False) if texts else ())
    prompts = []
    for given in inputs:
        if isinstance(given, str):
            ids, text = tuple(next(found).ids), given
        else:
            if given:
                check_ids(given, tokenizer, parameter)
            ids, text = given, tokenizer.decode(given)
        ids = ids if truncate is None else ids[-truncate:]
        check_prompt_length(ids, model, parameter)
        prompts.append(Prompt(token_ids=ids, text=text))
    return prompts


def check_prompt_length(ids: Sequence[int], model: GenerationModel, parameter: str) -> None:
    """EmptyInputError, or InputError for a prompt that is too long."""
    if not ids:
        raise EmptyInputError(parameter)
    if len(ids) >= model.max_total_tokens:
        raise InputError(
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

    A default is lowered to what the context leaves; InputError for a wish that exceeds it.
    """
    num_tokens = len(prompt.token_ids)
    room = model.max_total_tokens - num_tokens
    if wanted is None:
        return room if default is None else min(room, default)
    if wanted > room:
        raise InputError(
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
        raise InputError(
            f"Input validation error: `{parameter}` must have less than {limit} characters. Given: {len(text)}",
            parameter=parameter,
        )
    return text
