"""How large the values of a request may be, found out before anything works on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import BaseModel

from service.errors import InvalidRequestError, TextTooLongError

_MAX_DEPTH = 32
_MAX_FIELDS = 1_000


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """`max_text_characters` bounds each text, `max_values` what all lists and objects hold together, keys included."""

    max_text_characters: int
    max_values: int


def check_num_values(body: bytes, limit: int) -> None:
    """InvalidRequestError for JSON with more values than `limit`, before a parser makes an object of each.

    Counts the commas and colons outside of strings, of which there are fewer than values; a key is one too. The fields
    themselves are not limited so, hence a few more.
    """
    most = limit + _MAX_FIELDS
    if body.count(b",") + body.count(b":") <= most:
        return
    signs = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    inside = np.bitwise_xor.accumulate(signs == ord('"'))
    if np.count_nonzero(((signs == ord(",")) | (signs == ord(":"))) & ~inside) > most:
        raise InvalidRequestError(_too_many(limit))


def _too_many(limit: int) -> str:
    return f"Invalid request: the lists and objects of a request hold more than {limit} values"


def check_sizes(fields: Mapping[str, Any], limits: SizeLimits) -> None:
    """TextTooLongError or InvalidRequestError for the first field that is too long, too full or nested too deep."""
    num_values = 0
    for name, field in fields.items():
        level = [field]
        depth = 0
        while level:
            below: list[Any] = []
            for value in level:
                if isinstance(value, str):
                    if len(value) > limits.max_text_characters:
                        raise TextTooLongError(len(value), limits.max_text_characters, parameter=name)
                elif isinstance(value, list | dict):
                    num_values += len(value) if isinstance(value, list) else 2 * len(value)
                    if num_values > limits.max_values:
                        raise InvalidRequestError(_too_many(limits.max_values), parameter=name)
                    below += value if isinstance(value, list) else value.values()
            depth += bool(below)
            if depth > _MAX_DEPTH:
                raise InvalidRequestError(
                    f"Invalid request: {name} parameter is nested deeper than {_MAX_DEPTH} levels", parameter=name
                )
            level = below


def check_total(texts: Sequence[Sized], limit: int, *, parameter: str) -> None:
    """TextTooLongError for more characters in all `texts` than `limit`; token ids count as characters."""
    if (num_characters := sum(map(len, texts))) > limit:
        raise TextTooLongError(num_characters, limit, parameter=parameter)


def check_lengths(model: type[BaseModel], fields: Mapping[str, Any], error_class: type[InvalidRequestError]) -> None:
    """`error_class` for a list or an object that is longer than the schema of `model` allows.

    Pydantic counts an object's values after it has checked each of them, and then lists every fault that it found.
    """
    for name, limit in _longest(model).items():
        value = fields.get(name)
        if isinstance(value, list | dict) and len(value) > limit:
            raise error_class(
                f"Invalid request: {name} parameter has {len(value)} values, allowed: {limit}", parameter=name
            )


@lru_cache(maxsize=256)
def _longest(model: type[BaseModel]) -> dict[str, int]:
    """The most values in the list or object of each field that has such a limit."""
    found = {}
    for name, schema in model.model_json_schema()["properties"].items():
        shapes = schema.get("anyOf", [schema])
        limits = [shape[key] for shape in shapes for key in ("maxItems", "maxProperties") if key in shape]
        if limits:
            found[name] = max(limits)
    return found
