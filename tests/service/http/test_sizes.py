"""Every list, object and text of every request has a limit, which is looked at before anything works on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from service.app import ROUTERS
from service.errors import InputError, InvalidRequestError, TextTooLongError
from service.http.sizes import SizeLimits, check_lengths, check_num_values, check_sizes
from tests.service.conftest import RunningEmbedder, ServeEmbedder
from tests.service.heads.attend.conftest import RunningAttention, running_attention

LIMITS = SizeLimits(max_text_characters=10, max_values=20)
BY_SETTINGS = {"q", "target_prefix", "text", "input", "inputs", "ids", "prompt", "file"}
"""Fields whose routes count their texts themselves, by a setting."""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1] * 21, "more than 20 values"),
        ([[1] * 10, [1] * 10], "more than 20 values"),
        ({"a": {str(number): 1 for number in range(20)}}, "more than 20 values"),
    ],
)
def test_lists_and_objects_are_counted_together(value: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as raised:
        check_sizes({"first": "a", "field": value}, LIMITS)
    assert raised.value.parameter == "field"


@pytest.mark.parametrize("value", ["a" * 11, ["a" * 11], {"a": ["b", {"c": "d" * 11}]}])
def test_a_text_is_counted_wherever_it_stands(value: Any) -> None:
    with pytest.raises(TextTooLongError, match=r"request \(11\) exceeds text limit \(10\)"):
        check_sizes({"field": value}, LIMITS)


def test_what_is_within_the_limits_passes() -> None:
    check_sizes({"q": "a" * 10, "ids": [1] * 16, "flag": True, "none": None, "nested": [[[]]]}, LIMITS)


def test_values_are_counted_before_they_are_parsed() -> None:
    many = b"[1,2]," * 1000
    check_num_values(b'{"q":"' + b"a,b:" * 5000 + b'"}', 20)
    check_num_values(rb'{"q":"' + rb"\"," * 5000 + rb'\\"}', 20)
    for body in (b'{"a":[' + many + b"1]}", b'{"a":{' + b'"b":1,' * 1000 + b'"c":1}}', rb'{"a":"\\",' + many + b"1}"):
        with pytest.raises(InvalidRequestError, match="more than 20 values"):
            check_num_values(body, 20)


def test_depth_has_a_limit() -> None:
    def nested(depth: int) -> Any:
        return [nested(depth - 1)] if depth else 1

    check_sizes({"field": nested(32)}, SizeLimits(10, 1000))
    with pytest.raises(InvalidRequestError, match="nested deeper than 32 levels"):
        check_sizes({"field": nested(34)}, SizeLimits(10, 1000))


def schemas() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for router, _ in ROUTERS:
        for route in router.routes:
            if not isinstance(route, APIRoute):
                continue
            body = (route.openapi_extra or {}).get("requestBody", {})
            for content in body.get("content", {}).values():
                for name, schema in content["schema"]["properties"].items():
                    yield route.path, name, schema


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all the schemas in it."""
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from parts(part)


def test_every_list_and_object_of_a_request_has_a_limit() -> None:
    checked = set()
    for path, name, schema in schemas():
        checked.add(path)
        if name in BY_SETTINGS:
            continue
        for part in parts(schema):
            if part.get("type") == "array":
                assert "maxItems" in part, (path, name, part)
            if part.get("type") == "object" and not part.get("properties"):
                assert "maxProperties" in part, (path, name, part)
    assert {"/translate", "/attention", "/generate", "/v1/chat/completions", "/embed", "/tokenize"} <= checked


def test_pydantic_never_sees_a_list_that_is_too_long() -> None:
    from service.heads.attend.schemas import AttentionBody

    with pytest.raises(InputError, match="inputs parameter has 3 values, allowed: 2"):
        check_lengths(AttentionBody, {"inputs": ["a", "b", "c"]}, InputError)
    check_lengths(AttentionBody, {"inputs": ["a", "b"], "q": "c" * 5}, InputError)


@pytest.fixture(scope="module")
def attention() -> Iterator[RunningAttention]:
    with running_attention() as served:
        yield served


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/attention", {"inputs": [1] * 900_000}, "more than 300000 values"),
        ("/attention", {"inputs": [1] * 1000}, "inputs parameter has 1000 values, allowed: 2"),
        ("/attention", {"inputs": "a", "layers": "x," * 40_000}, "layers"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {str(n): "x" for n in range(80_000)}}, "allowed: 1024"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {"9" * 5000: 1}}, "its keys are token ids"),
        ("/v1/completions", {"prompt": "a", "stop": ["s" * 5000]}, "stop parameter"),
        ("/v1/chat/completions", {"messages": [{}] * 3000}, "messages parameter has 3000 values, allowed: 2048"),
        ("/generate", {"inputs": "a", "parameters": {str(n): 1 for n in range(1000)}}, "allowed: 100"),
        ("/generate", {"inputs": "a" * 100_001}, "exceeds text limit (100000)"),
        ("/tokenize", {"inputs": "a" * 100_001, "model": "story"}, "exceeds text limit (100000)"),
        ("/tokenize", {"inputs": ["a" * 60_000] * 2, "model": "story"}, "exceeds text limit (100000)"),
        ("/decode", {"ids": [[1] * 60_000] * 2}, "exceeds text limit (100000)"),
        ("/translate", {"q": [1] * 250_000, "source": "en", "target": "de"}, "q parameter must be a string"),
        ("/translate", {"q": "a", "source": "en", "target": "de", "model": "m" * 200_000}, "exceeds text limit"),
        ("/embed", {"inputs": [[[1] * 100] * 30] * 30}, "must be"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("/") else "",
)
def test_sizes_are_refused(attention: RunningAttention, path: str, body: dict[str, Any], words: str) -> None:
    content = json.dumps(body, separators=(",", ":"))
    response = attention.client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code in {400, 422}
    assert words in response.text
    assert len(response.content) < 1000


def test_a_body_nested_deeply_is_refused(attention: RunningAttention) -> None:
    for depth in (40, 500, 200_000):
        body = '{"inputs":' + "[" * depth + "]" * depth + "}"
        response = attention.client.post("/embed", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code in {400, 422}


def test_an_embedding_of_tokens_has_a_limit(serve_embedder: ServeEmbedder) -> None:
    served: RunningEmbedder = serve_embedder(max_answer_values=100)
    response = served.embed(["the house is old"] * 20, "/embed_all")
    assert response.status_code == 422
    assert "numbers, allowed: 100" in response.json()["error"]
    assert served.embed("a", "/embed_all").status_code == 200
