"""Texts to the token ids that an embedding model reads, and the threads that do it.

What is read is the prompt, the text, and the special tokens that the tokenizer's file puts around them. An input that
is longer than the model allows loses tokens at one end, never the special ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

from model.tokenizer import Tokenizer
from service.errors import InputError, TokenIdError, quoted
from service.inputs import Input
from service.models import EmbeddingModel

T = TypeVar("T")

Direction = Literal["right", "left"]

_INLINE_CHARACTERS = 2_000  # shorter work is done before a thread would have begun it (docs/decisions/0060)
MAX_CHARACTERS_PER_TOKEN = 250  # as TEI counts; a bound on the work before anything is known of the tokens


@dataclass(frozen=True, slots=True)
class Truncation:
    """Whether an input that is too long is cut, and at which end."""

    is_on: bool = True
    direction: Direction = "right"


class TokenizationPool:
    """Threads for what takes long. The tokenizers library lets other Python code run while it works on a list."""

    def __init__(self, num_workers: int) -> None:
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="tokenization")

    async def run(self, num_characters: int, work: Callable[[], T]) -> T:
        """What `work` returns; at once where it is short, else in a thread."""
        if num_characters <= _INLINE_CHARACTERS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for the work that has begun, and drop the rest."""
        self._pool.shutdown(cancel_futures=True)


def count_characters(inputs: Sequence[Input]) -> int:
    """As TEI counts them: an input of token ids has as many as ids."""
    return sum(map(len, inputs))


def find_prompt(model: EmbeddingModel, name: str | None) -> str:
    """The text of the prompt `name`, or of the model's default; "" where there is none. InputError lists the names."""
    name = model.default_prompt_name if name is None else name
    if name is None:
        return ""
    if name not in model.prompts:
        known = ", ".join(sorted(model.prompts)) or "none, the model has no prompts"
        raise InputError(
            f"Input validation error: `prompt_name` {quoted(name)!r} is not a prompt of the model {model.name}. "
            f"Allowed: {known}",
            parameter="prompt_name",
        )
    return model.prompts[name]


def encode_inputs(
    model: EmbeddingModel, inputs: Sequence[Input], *, prompt: str, truncation: Truncation, parameter: str
) -> list[tuple[int, ...]]:
    """What the model reads for each input. Token ids are taken as they are, special tokens and all, unless there is a
    prompt, which goes before the text that they spell.

    Raises InputError for an input that is too long and may not be cut, TokenIdError for an unknown token id.
    """
    tokenizer = model.tokenizer
    encoded: list[tuple[int, ...] | None] = [None] * len(inputs)
    texts: list[str] = []
    for number, given in enumerate(inputs):
        if isinstance(given, str):
            texts.append(prompt + bounded_text(given, model.max_input_tokens, truncation, parameter))
            continue
        check_ids(given, tokenizer, parameter)
        if prompt:
            texts.append(prompt + tokenizer.decode(given))
        else:
            encoded[number] = _fit_ids(given, model, truncation, parameter)
    # One call for all texts, because only a call with a list lets other threads run meanwhile.
    found = iter(tokenizer.encodings(texts, with_offsets=False) if texts else ())
    for number, done in enumerate(encoded):
        if done is None:
            encoding = next(found)
            ids = encoding.ids
            if len(ids) > model.max_input_tokens:
                ids = _cut(ids, encoding.special_tokens_mask, model.max_input_tokens, truncation, parameter)
            encoded[number] = tuple(ids)
    return [ids for ids in encoded if ids is not None]


def bounded_text(text: str, max_input_tokens: int, truncation: Truncation, parameter: str) -> str:
    """`text` with no more characters than could ever matter, so that tokenizing it takes no longer than that."""
    limit = max_input_tokens * MAX_CHARACTERS_PER_TOKEN
    if len(text) <= limit:
        return text
    if not truncation.is_on:
        raise InputError(
            f"Input validation error: `{parameter}` must have less than {limit} characters. Given: {len(text)}",
            parameter=parameter,
        )
    return text[:limit] if truncation.direction == "right" else text[-limit:]


def check_ids(ids: Sequence[int], tokenizer: Tokenizer, parameter: str) -> None:
    """TokenIdError for the first id that is not in the vocabulary."""
    size = tokenizer.vocab_size
    if min(ids) < 0 or max(ids) >= size:
        raise TokenIdError(next(token_id for token_id in ids if not 0 <= token_id < size), size, parameter=parameter)


def _fit_ids(ids: tuple[int, ...], model: EmbeddingModel, truncation: Truncation, parameter: str) -> tuple[int, ...]:
    if len(ids) <= model.max_input_tokens:
        return ids
    specials = model.tokenizer.special_ids
    mask = [int(token_id in specials) for token_id in ids]
    return tuple(_cut(ids, mask, model.max_input_tokens, truncation, parameter))


def _cut(
    ids: Sequence[int], special_mask: Sequence[int], max_tokens: int, truncation: Truncation, parameter: str
) -> list[int]:
    """`ids` with at most `max_tokens`: those marked as special at both ends stay, and what is between them is cut."""
    if not truncation.is_on:
        raise InputError(
            f"Input validation error: `{parameter}` must have less than {max_tokens} tokens. Given: {len(ids)}",
            parameter=parameter,
        )
    start, end = 0, len(ids)
    while start < end and special_mask[start]:
        start += 1
    while end > start and special_mask[end - 1]:
        end -= 1
    room = max(0, max_tokens - start - (len(ids) - end))
    kept = ids[start : start + room] if truncation.direction == "right" else ids[end - room : end]
    return [*ids[:start], *kept, *ids[end:]][:max_tokens]
