"""Bodies to fields, by the standard library and orjson, within limits."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from service.errors import InvalidRequestError, shown
from service.http.replies import list_to_json, to_json
from service.http.request_parsing import parse_form, parse_json_object
from tests.service.conftest import Running, Serve


def test_a_form_is_read_in_utf8() -> None:
    body = "q=ä+b%C3%A4%20&empty=&q2=a=b&q=last".encode()
    assert dict(parse_form(body)) == {"q": "last", "empty": "", "q2": "a=b"}
    assert parse_form(b"q=\xff%ff") == [("q", "\ufffd\ufffd")]
    assert parse_form(b"") == []


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"&" * 1000, "more than 100 fields"), (b"q=" + b"%" * 1000, "% signs that begin no escape")],
)
def test_a_form_that_costs_more_than_its_bytes_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        parse_form(body)


@pytest.fixture
def server(serve: Serve) -> Running:
    return serve()


def test_a_long_form_is_read_beside_the_event_loop(server: Running) -> None:
    text = "%C3%A4" * 15_000
    body = f"q={text}&source=en&target=de"
    response = server.client.post(
        "/translate", content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert response.json() == {"translatedText": "Ä" * 15_000}


@pytest.mark.parametrize(
    "body", [b'{"a":NaN}', b'{"a":1e999}', b'{"a":"\\ud800"}', b'{"a":"\xed\xa0\x80"}', b"[1]", b"{"]
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="Invalid JSON format"):
        parse_json_object(body, 100)


def test_a_byte_order_mark_is_no_error() -> None:
    assert parse_json_object(b'\xef\xbb\xbf{"a": 1}', 100) == {"a": 1}


def test_a_value_is_shown_without_writing_all_of_it() -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise AssertionError("this is beyond what is shown")

    few: list[Any] = ["a"] * 64
    assert shown([*few, Unprintable()]).startswith("['a', 'a'")
    assert shown({"k": {"k": [[Unprintable()]]}}) == "{'k': {'k': ['...']}}"
    assert shown("a" * 1000) == "'" + "a" * 63 + "..."


def test_long_lists_of_vectors_are_written_in_parts() -> None:
    vectors = [np.arange(width * 300, dtype=np.float32).reshape(300, width) for width in (1, 400, 7)]
    written = asyncio.run(list_to_json(vectors))
    assert written == b"[" + b",".join(map(to_json, vectors)) + b"]"
    flat = [np.arange(120_000, dtype=np.float32)]
    assert asyncio.run(list_to_json(flat)) == b"[" + to_json(flat[0]) + b"]"
