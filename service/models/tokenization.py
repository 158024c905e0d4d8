"""Texts to the token ids that a model reads.

A model reads the prompt, the text, and the special tokens that the tokenizer's file adds. An input that is longer than
the model's limit is truncated at one end; its special tokens stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeVar

from model.tokenizer import Tokenizer
from service.errors import ContextLengthError, ForeignTokensError, TokenIdError
from service.workers import WorkerPool

T = TypeVar("T")

Direction = Literal["right", "left"]
Input = str | tuple[int, ...]
"""A text, or token ids."""

_CHARACTERS_IN_TURN = 100_000  # at most about a second of work
MAX_CHARACTERS_PER_TOKEN = 250  # as in TEI; bounds the work before the number of tokens is known


class Encoded(NamedTuple):
    """What a model reads of one input, and whether that is less than was given."""

    ids: tuple[int, ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Truncation:
    """Whether an input that is too long is cut, and at which end."""

    is_on: bool = True
    direction: Direction = "right"


async def run_in_turns(
    pool: WorkerPool, inputs: Sequence[Input], work: Callable[[Sequence[Input]], list[T]]
) -> list[T]:
    """The results of `work` for `inputs`, computed in parts, between which other requests can run."""
    results: list[T] = []
    for part in _parts(inputs):
        results += await pool.run(count_characters(part), partial(work, part))
    return results


def _parts(inputs: Sequence[Input]) -> Iterator[Sequence[Input]]:
    start = num_characters = 0
    for end, given in enumerate(inputs):
        num_characters += len(given)
        if num_characters > _CHARACTERS_IN_TURN and end > start:
            yield inputs[start:end]
            start, num_characters = end, len(given)
    yield inputs[start:]


def count_characters(inputs: Sequence[Input]) -> int:
    """As TEI counts them: an input of token ids has as many as ids."""
    return sum(map(len, inputs))


def encode_inputs(
    tokenizer: Tokenizer,
    inputs: Sequence[Input],
    *,
    max_tokens: int,
    prompt: str,
    truncation: Truncation,
    parameter: str,
) -> list[Encoded]:
    """What a model of at most `max_tokens` reads for each input. Token ids are taken as they are, special tokens and
    all, unless there is a prompt, which goes before the text that they spell.

    Raises InputError for an input that is too long and may not be cut, TokenIdError for an unknown token id.
    """
    encoded: list[Encoded | None] = [None] * len(inputs)
    texts: list[str] = []
    shortened: list[bool] = []
    for number, given in enumerate(inputs):
        if isinstance(given, str):
            text = bounded_text(given, max_tokens, truncation, parameter)
            texts.append(prompt + text)
            shortened.append(len(text) < len(given))
            continue
        check_ids(given, tokenizer, parameter)
        _check_ends(given, tokenizer, parameter)
        if prompt:
            texts.append(prompt + tokenizer.decode(given))
            shortened.append(False)
        else:
            ids = _fit_ids(given, tokenizer.special_ids, max_tokens, truncation, parameter)
            encoded[number] = Encoded(ids, len(ids) < len(given))
    # One call for all texts, because only a call with a list releases the GIL.
    encodings = tokenizer.encodings(texts, with_offsets=False) if texts else ()
    found = iter(zip(encodings, shortened, strict=True))
    for number, done in enumerate(encoded):
        if done is None:
            encoding, is_shortened = next(found)
            kept = encoding.ids
            if len(kept) > max_tokens:
                kept = _cut(kept, encoding.special_tokens_mask, max_tokens, truncation, parameter)
            encoded[number] = Encoded(tuple(kept), is_shortened or len(kept) < len(encoding.ids))
    return [each for each in encoded if each is not None]


def bounded_text(text: str, max_tokens: int, truncation: Truncation, parameter: str) -> str:
    """`text`, truncated to the most characters that `max_tokens` could have, which bounds the time of tokenizing."""
    limit = max_tokens * MAX_CHARACTERS_PER_TOKEN
    if len(text) <= limit:
        return text
    if not truncation.is_on:
        raise ContextLengthError(
            f"Input validation error: `{parameter}` must have less than {limit} characters. Given: {len(text)}",
            parameter=parameter,
        )
    return text[:limit] if truncation.direction == "right" else text[-limit:]


def check_ids(ids: Sequence[int], tokenizer: Tokenizer, parameter: str) -> None:
    """TokenIdError for the first id that is not in the vocabulary."""
    size = tokenizer.vocab_size
    if min(ids) < 0 or max(ids) >= size:
        raise TokenIdError(next(token_id for token_id in ids if not 0 <= token_id < size), size, parameter=parameter)


def _check_ends(ids: tuple[int, ...], tokenizer: Tokenizer, parameter: str) -> None:
    """ForeignTokensError for ids without the special tokens around a text."""
    before, after = tokenizer.ends
    if ids[: len(before)] != before or ids[len(ids) - len(after) :] != after:
        raise ForeignTokensError(before, after, parameter=parameter)


def _fit_ids(
    ids: tuple[int, ...], special_ids: Collection[int], max_tokens: int, truncation: Truncation, parameter: str
) -> tuple[int, ...]:
    if len(ids) <= max_tokens:
        return ids
    mask = [int(token_id in special_ids) for token_id in ids]
    return tuple(_cut(ids, mask, max_tokens, truncation, parameter))


def _cut(
    ids: Sequence[int], special_mask: Sequence[int], max_tokens: int, truncation: Truncation, parameter: str
) -> list[int]:
    """`ids` with at most `max_tokens`: those marked as special at both ends stay, and what is between them is cut."""
    if not truncation.is_on:
        raise ContextLengthError(
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
