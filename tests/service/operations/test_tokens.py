"""/tokenize and /decode to the letter of TEI's protocol."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.conftest import Running, RunningEmbedder, ServeEmbedder
from tests.service.embed_fakes import embed_tokenizer

TEXT = "the key, Größe 5"


def tokenize(embedder: RunningEmbedder, inputs: Any, **fields: Any) -> Any:
    response = embedder.embed(inputs, "/tokenize", **fields)
    assert response.status_code == 200, response.text
    return response.json()


def decode(embedder: RunningEmbedder, ids: Any, **fields: Any) -> Any:
    return embedder.client.post("/decode", json={"ids": ids} | fields)


def test_tokens_have_their_place_in_the_text(embedder: RunningEmbedder) -> None:
    (tokens,) = tokenize(embedder, TEXT)
    first, *middle, last = tokens
    assert first == {"id": 1, "text": "<s>", "special": True, "start": None, "stop": None}
    assert last == {"id": 2, "text": "</s>", "special": True, "start": None, "stop": None}
    (encoding,) = embed_tokenizer().encodings([TEXT])
    assert [token["id"] for token in tokens] == encoding.ids
    assert all(token["text"] == TEXT[token["start"] : token["stop"]] for token in middle)
    assert not any(token["special"] for token in middle)
    assert middle[-1]["stop"] == len(TEXT)  # characters, though two of them have two bytes


def test_a_special_tokens_spelling_in_a_text_is_text(embedder: RunningEmbedder) -> None:
    (tokens,) = tokenize(embedder, "</s>", add_special_tokens=False)
    assert not any(token["special"] for token in tokens)
    assert 2 not in [token["id"] for token in tokens]


def test_many_texts_keep_their_order(embedder: RunningEmbedder) -> None:
    assert tokenize(embedder, ["a", "b c"]) == [*tokenize(embedder, "a"), *tokenize(embedder, "b c")]


def test_without_special_tokens(embedder: RunningEmbedder) -> None:
    (with_them,), (without,) = tokenize(embedder, TEXT), tokenize(embedder, TEXT, add_special_tokens=False)
    assert without == with_them[1:-1]


def test_a_prompt_goes_before_the_text(embedder: RunningEmbedder) -> None:
    assert tokenize(embedder, "c", prompt_name="query") == tokenize(embedder, "a b c")
    response = embedder.embed("c", "/tokenize", prompt_name="none")
    assert (response.status_code, response.json()["error_type"]) == (422, "Validation")


def test_a_long_text_runs_in_a_thread_and_is_the_same(embedder: RunningEmbedder) -> None:
    (tokens,) = tokenize(embedder, "a b" + " a b" * 899, add_special_tokens=False)
    assert len(tokens) == 1800


def test_token_ids_come_back_as_texts(embedder: RunningEmbedder) -> None:
    (tokens,) = tokenize(embedder, "the house")
    ids = [token["id"] for token in tokens]
    assert decode(embedder, ids).json() == ["the house"]
    assert decode(embedder, [ids, ids[1:2]]).json() == ["the house", "the"]
    assert decode(embedder, ids, skip_special_tokens=False).json() == ["<s> the house</s>"]


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "message"),
    [
        ("/tokenize", {"inputs": ""}, 400, "Empty", "`inputs` cannot be empty"),
        ("/tokenize", {"inputs": []}, 400, "Empty", "`inputs` cannot be empty"),
        ("/tokenize", {"inputs": [1, 2]}, 422, "Validation", "must be a string, or a list of strings. Given: 1"),
        ("/tokenize", {}, 422, "Validation", "`inputs` is missing"),
        ("/tokenize", {"inputs": ["a"] * 33}, 422, "Validation", "batch size 33 > maximum allowed batch size 32"),
        ("/tokenize", {"inputs": "a" * 4001}, 422, "Validation", "less than 4000 characters. Given: 4001"),
        ("/tokenize", {"inputs": "a", "model": "none"}, 404, "NotFound", "choose from: en-de, mini"),
        ("/tokenize", {"inputs": "a", "model": "en-de", "prompt_name": "q"}, 422, "Validation", "has no prompts"),
        ("/decode", {"ids": []}, 400, "Empty", "`ids` cannot be empty"),
        ("/decode", {"ids": [[]]}, 400, "Empty", "`ids` cannot be empty"),
        ("/decode", {"ids": "a"}, 422, "Validation", "must be a list of token ids, or a list of such lists"),
        ("/decode", {"ids": [1, [2]]}, 422, "Validation", "must be a list of token ids"),
        ("/decode", {"ids": [[1], [99_999]]}, 422, "Tokenizer", "token id 99999"),
        ("/decode", {"ids": [[1]] * 33}, 422, "Validation", "batch size 33 > maximum allowed batch size 32"),
    ],
)
def test_errors(
    embedder: RunningEmbedder, path: str, body: dict[str, Any], status: int, kind: str, message: str
) -> None:
    response = embedder.client.post(path, json=body)
    assert (response.status_code, response.json()["error_type"]) == (status, kind)
    assert message in response.json()["error"]


def test_a_server_that_only_translates_has_tokens_too(server: Running) -> None:
    response = server.client.post("/tokenize", json={"inputs": "a b"})
    assert [token["text"] for token in response.json()[0]] == ["a", " b"]
    response = server.client.post("/embed", json={"inputs": "a b"})
    assert (response.status_code, response.json()["error_type"]) == (404, "NotFound")
    assert "No model for the task embed is loaded: add a bundle" in response.json()["error"]


def test_the_key_is_asked_for(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder(api_keys="one")
    assert served.embed("a", "/tokenize").status_code == 401
    assert decode(served, [1]).status_code == 401
