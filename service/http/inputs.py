"""The inputs of a request for embeddings or tokens: one or many, texts or token ids, within the limits.

TEI and OpenAI agree on the shapes: a text, a list of texts, a list of token ids (which is one input), or a list that
holds texts and lists of token ids.
"""

from __future__ import annotations

from typing import Any

from service.errors import EmptyInputError, InputError, shown
from service.http.request_parsing import RequestFields
from service.models.tokenization import Input

ALLOWED_INPUTS = "a string, a list of token ids, or a list of these"
ALLOWED_TEXTS = "a string, or a list of strings"
ALLOWED_IDS = "a list of token ids, or a list of such lists"


def parse_inputs(fields: RequestFields, name: str, *, max_batch_size: int) -> list[Input]:
    """The inputs in the field `name`; raises EmptyInputError or InputError."""
    value = fields.values.get(name)
    items = [value] if isinstance(value, str) or _are_ids(value) else _items(value, name, ALLOWED_INPUTS)
    _check_count(items, name, max_batch_size)
    return _checked([_one(item, name, ALLOWED_INPUTS) for item in items], name)


def parse_texts(fields: RequestFields, name: str, *, max_batch_size: int) -> list[str]:
    """The same for a field that takes no token ids."""
    value = fields.values.get(name)
    texts = [value] if isinstance(value, str) else _items(value, name, ALLOWED_TEXTS)
    _check_count(texts, name, max_batch_size)
    for text in texts:
        if not isinstance(text, str):
            raise _not_allowed(text, name, ALLOWED_TEXTS)
    return _checked(texts, name)


def parse_ids(fields: RequestFields, name: str, *, max_batch_size: int) -> list[tuple[int, ...]]:
    """The same for a field that takes token ids alone."""
    value = fields.values.get(name)
    lists: list[Any] = [value] if _are_ids(value) else _items(value, name, ALLOWED_IDS)
    _check_count(lists, name, max_batch_size)
    for ids in lists:
        if not (_are_ids(ids) or ids == []):
            raise _not_allowed(ids, name, ALLOWED_IDS)
    return _checked([tuple(ids) for ids in lists], name)


def _items(value: Any, name: str, allowed: str) -> list[Any]:
    if value is None:
        raise InputError(f"Input validation error: `{name}` is missing, it must be {allowed}", parameter=name)
    if not isinstance(value, list):
        raise _not_allowed(value, name, allowed)
    return value


def _one(item: Any, name: str, allowed: str) -> Input:
    if isinstance(item, str):
        return item
    if _are_ids(item) or item == []:
        return tuple(item)
    raise _not_allowed(item, name, allowed)


def _are_ids(value: Any) -> bool:
    # A bool is an int to Python, and no token id to anybody.
    return isinstance(value, list) and bool(value) and all(type(token_id) is int for token_id in value)


def _check_count(items: list[Any], name: str, max_batch_size: int) -> None:
    if len(items) > max_batch_size:
        raise InputError(f"batch size {len(items)} > maximum allowed batch size {max_batch_size}", parameter=name)


def _checked(inputs: list[Any], name: str) -> list[Any]:
    if not inputs or not all(inputs):
        raise EmptyInputError(name)
    return inputs


def _not_allowed(value: Any, name: str, allowed: str) -> InputError:
    return InputError(f"Input validation error: `{name}` must be {allowed}. Given: {shown(value)}", parameter=name)
