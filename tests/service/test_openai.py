"""/v1/embeddings and /v1/models to the letter of OpenAI's protocol."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from service.engine.core.errors import ModelUnavailableError
from tests.service.conftest import Running, RunningEmbedder, ServeEmbedder
from tests.service.embed_fakes import MAX_TOKENS, WIDTH, embed_tokenizer, pooled

TEXT = "the house is old"


def ids_of(text: str) -> list[int]:
    return embed_tokenizer().encodings([text])[0].ids


def test_the_answer_has_openais_shape(embedder: RunningEmbedder) -> None:
    response = embedder.openai([TEXT, "c"], model="mini", user="me")
    assert response.status_code == 200
    body = response.json()
    vectors = [item.pop("embedding") for item in body["data"]]
    num_tokens = len(ids_of(TEXT)) + len(ids_of("c"))
    assert body == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0}, {"object": "embedding", "index": 1}],
        "model": "mini",
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }
    assert vectors == embedder.embed([TEXT, "c"]).json()
    assert response.headers["x-compute-tokens"] == str(num_tokens)


@pytest.mark.parametrize(("value", "num_vectors"), [(TEXT, 1), ([TEXT], 1), (ids_of(TEXT), 1), ([ids_of(TEXT)] * 2, 2)])
def test_texts_and_token_ids(embedder: RunningEmbedder, value: Any, num_vectors: int) -> None:
    data = embedder.openai(value).json()["data"]
    expected = embedder.embed(TEXT).json()[0]
    assert [item["embedding"] for item in data] == [expected] * num_vectors


def test_base64_is_little_endian_float32(embedder: RunningEmbedder) -> None:
    (item,) = embedder.openai(TEXT, encoding_format="base64").json()["data"]
    vector = np.frombuffer(base64.b64decode(item["embedding"]), dtype="<f4")
    assert vector.tolist() == pytest.approx(embedder.embed(TEXT).json()[0], rel=1e-7)


def test_dimensions_cut_first_then_normalise(embedder: RunningEmbedder) -> None:
    (item,) = embedder.openai(TEXT, dimensions=3).json()["data"]
    cut = pooled(ids_of(TEXT))[:3]
    np.testing.assert_allclose(item["embedding"], cut / np.linalg.norm(cut), rtol=1e-6)


def test_a_long_input_is_cut_as_the_server_is_set(serve_embedder: ServeEmbedder) -> None:
    long = "a b c d e " * 10
    assert serve_embedder().openai(long).json()["usage"]["prompt_tokens"] == MAX_TOKENS
    response = serve_embedder(auto_truncate=False).openai(long)
    assert response.status_code == 400
    assert response.json()["error"] == {
        "message": f"Input validation error: `input` must have less than 16 tokens. Given: {len(ids_of(long))}",
        "type": "invalid_request_error",
        "param": "input",
        "code": "context_length_exceeded",
    }


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({}, "input", "`input` is missing"),
        ({"input": None}, "input", "`input` is missing"),
        ({"input": ""}, "input", "`input` cannot be empty"),
        ({"input": []}, "input", "`input` cannot be empty"),
        ({"input": {"a": 1}}, "input", "must be a string, a list of token ids"),
        ({"input": ["a"] * 2049}, "input", "batch size 2049 > maximum allowed batch size 2048"),
        ({"input": [[99_999]]}, "input", "token id 99999"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "'float' or 'base64'. Given: 'hex'"),
        ({"input": "a", "dimensions": WIDTH + 1}, "dimensions", f"between 1 and {WIDTH}. Given: {WIDTH + 1}"),
        ({"input": "a", "model": "en-de"}, "model", "is for the task translate, not for embed, choose from: mini"),
    ],
)
def test_bad_requests_are_400(embedder: RunningEmbedder, body: dict[str, Any], param: str, message: str) -> None:
    response = embedder.client.post("/v1/embeddings", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert message in error["message"]


def test_an_unknown_model_is_404(embedder: RunningEmbedder) -> None:
    for response in (embedder.openai(TEXT, model="text-embedding-3-small"), embedder.client.get("/v1/models/none")):
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["param"], error["code"]) == (
            404,
            "not_found_error",
            "model",
            "model_not_found",
        )
        assert "choose from: en-de, mini" in error["message"]


def test_no_model_that_embeds_is_404(server: Running) -> None:
    response = server.client.post("/v1/embeddings", json={"input": "a"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


def test_a_full_line_is_429(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder()
    served.engine.max_waiting = 0
    response = served.openai(TEXT)
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert response.json()["error"] == {
        "message": "Model is overloaded",
        "type": "rate_limit_error",
        "param": None,
        "code": "overloaded",
    }


def test_a_dead_engine_is_503(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder()
    served.engine.failure = ModelUnavailableError("dead")
    response = served.openai(TEXT)
    assert (response.status_code, response.json()["error"]["type"]) == (503, "server_error")


def test_a_wrong_key_is_401(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder(api_keys="one")
    for headers in ({}, {"Authorization": "Bearer two"}):
        for response in (
            served.client.post("/v1/embeddings", json={"input": TEXT}, headers=headers),
            served.client.get("/v1/models", headers=headers),
            served.client.get("/v1/models/mini", headers=headers),
        ):
            error = response.json()["error"]
            assert (response.status_code, error["type"], error["code"]) == (
                401,
                "authentication_error",
                "invalid_api_key",
            )
    headers = {"Authorization": "Bearer one"}
    assert served.client.get("/v1/models", headers=headers).status_code == 200


def test_models_are_listed_whatever_their_task(embedder: RunningEmbedder) -> None:
    body = embedder.client.get("/v1/models").json()
    assert body["object"] == "list"
    translator, mini = body["data"]
    assert isinstance(mini.pop("created"), int)
    assert mini == {"id": "mini", "object": "model", "owned_by": "polyhead", "task": "embed"}
    assert (translator["id"], translator["task"]) == ("en-de", "translate")
    assert embedder.client.get("/v1/models/mini").json()["id"] == "mini"
