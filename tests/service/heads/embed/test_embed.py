"""/embed and /embed_all to the letter of TEI's protocol."""

from __future__ import annotations

import json
import socket
from typing import Any

import numpy as np
import pytest

from service.engine.core.errors import ModelUnavailableError, RequestTooLargeError
from tests.service.conftest import RunningEmbedder, ServeEmbedder, wait_until
from tests.service.embed_fakes import (
    MAX_TOKENS,
    PROMPTS,
    WIDTH,
    FakeEmbeddingEngine,
    embed_tokenizer,
    fake_embedder,
    pooled,
    token_vectors,
)

TEXT = "the house is old"
LONG = "a b c d e " * 10


def ids_of(text: str, *, with_specials: bool = True) -> list[int]:
    (encoding,) = embed_tokenizer().encodings([text], with_specials)
    return encoding.ids


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def last_ids(embedder: RunningEmbedder) -> list[int]:
    return list(embedder.engine.requests[-1].input_ids)


def test_one_text_gives_a_list_of_one_vector(embedder: RunningEmbedder) -> None:
    response = embedder.embed(TEXT)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    np.testing.assert_allclose(response.json(), [unit(pooled(ids_of(TEXT)))], rtol=1e-6)


def test_numbers_come_back_as_the_float32_they_were(embedder: RunningEmbedder) -> None:
    body = embedder.embed(TEXT, normalize=False).json()
    assert np.array_equal(np.array(body, dtype=np.float32), [pooled(ids_of(TEXT))])


def test_a_list_of_texts_and_token_ids_keeps_its_order(embedder: RunningEmbedder) -> None:
    body = embedder.embed([TEXT, ids_of("a b"), "c"], normalize=False).json()
    expected = [pooled(ids) for ids in (ids_of(TEXT), ids_of("a b"), ids_of("c"))]
    assert np.array_equal(np.array(body, dtype=np.float32), expected)


def test_a_bare_list_of_token_ids_is_one_input(embedder: RunningEmbedder) -> None:
    body = embedder.embed(ids_of(TEXT)).json()
    assert body == embedder.embed(TEXT).json()
    assert len(body) == 1


def test_token_ids_are_taken_as_they_are(embedder: RunningEmbedder) -> None:
    embedder.embed([1, 7, 1, 9, 2])
    assert last_ids(embedder) == [1, 7, 1, 9, 2]


@pytest.mark.parametrize("ids", [[5, 6, 7], [1, 5], [5, 2], [2, 5, 1]])
def test_token_ids_without_the_special_tokens_are_refused(embedder: RunningEmbedder, ids: list[int]) -> None:
    """They are another tokenizer's, or not all of a text: their vector would be wrong, and nobody told."""
    response = embedder.embed(ids)
    assert (response.status_code, response.json()["error_type"]) == (422, "Validation")
    assert "token ids that do not begin with [1] and end with [2]" in response.json()["error"]
    answer = embedder.openai([ids])
    assert answer.status_code == 400
    assert "check_embedding_ctx_length=False" in answer.json()["error"]["message"]
    assert embedder.embed(ids, prompt_name="query").status_code == 422


def test_dimensions_cut_first_then_normalise(embedder: RunningEmbedder) -> None:
    (vector,) = embedder.embed(TEXT, dimensions=3).json()
    np.testing.assert_allclose(vector, unit(pooled(ids_of(TEXT))[:3]), rtol=1e-6)
    (raw,) = embedder.embed(TEXT, dimensions=3, normalize=False).json()
    assert np.array_equal(np.array(raw, dtype=np.float32), pooled(ids_of(TEXT))[:3])


@pytest.mark.parametrize("dimensions", [0, -1, WIDTH + 1])
def test_dimensions_out_of_range(embedder: RunningEmbedder, dimensions: int) -> None:
    response = embedder.embed(TEXT, dimensions=dimensions)
    assert response.status_code == 422
    assert response.json() == {
        "error": f"Input validation error: `dimensions` must be between 1 and {WIDTH}. Given: {dimensions}",
        "error_type": "Validation",
    }


def test_embed_all_gives_a_vector_for_each_token(embedder: RunningEmbedder) -> None:
    body = embedder.embed([TEXT, "c"], "/embed_all").json()
    for vectors, text in zip(body, (TEXT, "c"), strict=True):
        assert np.array_equal(np.array(vectors, dtype=np.float32), token_vectors(ids_of(text)))


def test_long_replies_of_embed_all_are_whole(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder(max_client_batch_size=3000)
    body = served.embed([LONG] * 3000, "/embed_all").json()
    assert np.array(body).shape == (3000, MAX_TOKENS, WIDTH)


@pytest.mark.parametrize("truncate", [True, None])
@pytest.mark.parametrize(("direction", "kept"), [("right", slice(0, 14)), ("Left", slice(-14, None))])
def test_truncation_cuts_at_one_end_and_keeps_the_special_tokens(
    embedder: RunningEmbedder, truncate: bool | None, direction: str, kept: slice
) -> None:
    response = embedder.embed(LONG, truncate=truncate, truncation_direction=direction)
    first, *middle, last = ids_of(LONG)
    assert response.headers["x-compute-tokens"] == str(MAX_TOKENS)
    assert last_ids(embedder) == [first, *middle[kept], last]


def test_truncation_of_token_ids_keeps_the_special_tokens(embedder: RunningEmbedder) -> None:
    embedder.embed(ids_of(LONG), truncation_direction="left")
    first, *middle, last = ids_of(LONG)
    assert last_ids(embedder) == [first, *middle[-14:], last]


@pytest.mark.parametrize("inputs", [LONG, ids_of(LONG)], ids=["text", "ids"])
def test_without_truncation_a_long_input_is_refused(embedder: RunningEmbedder, inputs: Any) -> None:
    response = embedder.embed(inputs, truncate=False)
    assert response.status_code == 422
    assert response.json() == {
        "error": f"Input validation error: `inputs` must have less than 16 tokens. Given: {len(ids_of(LONG))}",
        "error_type": "Validation",
    }


def test_the_servers_setting_decides_where_the_request_does_not(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder(auto_truncate=False)
    assert served.embed(LONG).status_code == 422
    assert served.embed(LONG, truncate=True).status_code == 200
    assert served.client.get("/info").json()["auto_truncate"] is False


def test_a_text_is_bounded_before_it_is_tokenized(embedder: RunningEmbedder) -> None:
    text = "a " * 2500
    response = embedder.embed(text, truncate=False)
    assert response.status_code == 422
    assert "must have less than 4000 characters. Given: 5000" in response.json()["error"]
    assert embedder.embed(text).status_code == 200
    embedder.embed(text + "c", truncation_direction="left")
    first, *middle, last = ids_of((text + "c")[-4000:])
    assert last_ids(embedder) == [first, *middle[-14:], last]


def test_a_prompt_goes_before_the_text(embedder: RunningEmbedder) -> None:
    for inputs in (TEXT, ids_of(TEXT)):
        embedder.embed(inputs, prompt_name="query")
        assert last_ids(embedder) == ids_of(PROMPTS["query"] + TEXT)


def test_the_models_default_prompt(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder(models=lambda engine: [fake_embedder(engine, default_prompt_name="document")])
    served.embed(TEXT)
    assert last_ids(served) == ids_of("the " + TEXT)
    served.openai(TEXT)
    assert last_ids(served) == ids_of("the " + TEXT)
    served.embed(TEXT, prompt_name="query")
    assert last_ids(served) == ids_of("a b " + TEXT)


def test_an_unknown_prompt_lists_the_names(embedder: RunningEmbedder) -> None:
    response = embedder.embed(TEXT, prompt_name="title")
    assert response.status_code == 422
    assert response.json()["error_type"] == "Validation"
    assert response.json()["error"].endswith(
        "`prompt_name` 'title' is not a prompt of the model mini. Allowed: document, query"
    )


def test_unknown_fields_and_nulls_are_as_good_as_absent(embedder: RunningEmbedder) -> None:
    names = ("truncate", "truncation_direction", "prompt_name", "normalize", "dimensions", "model")
    nulls: dict[str, Any] = dict.fromkeys(names)
    assert embedder.embed(TEXT, **nulls, encoding_format="float", other=[1]).json() == embedder.embed(TEXT).json()


def test_headers_tell_what_it_cost(embedder: RunningEmbedder) -> None:
    headers = embedder.embed([TEXT, "c"]).headers
    assert headers["x-compute-characters"] == str(len(TEXT) + 1)
    assert headers["x-compute-tokens"] == str(len(ids_of(TEXT)) + len(ids_of("c")))
    assert (headers["x-queue-time"], headers["x-inference-time"]) == ("2", "3")
    assert int(headers["x-total-time"]) >= int(headers["x-tokenization-time"]) >= 0


@pytest.mark.parametrize("inputs", ["", [], [""], ["a", ""], [[]], [[1], []]], ids=repr)
@pytest.mark.parametrize("path", ["/embed", "/embed_all"])
def test_empty_inputs_are_400(embedder: RunningEmbedder, path: str, inputs: Any) -> None:
    response = embedder.embed(inputs, path)
    assert response.status_code == 400
    assert response.json() == {"error": "`inputs` cannot be empty", "error_type": "Empty"}


@pytest.mark.parametrize("inputs", [None, 3, {"a": 1}, [1, "a"], [["a"]], [[1.5]], [True], [[True]]], ids=repr)
def test_inputs_that_are_none_are_422(embedder: RunningEmbedder, inputs: Any) -> None:
    response = embedder.embed(inputs)
    assert (response.status_code, response.json()["error_type"]) == (422, "Validation")
    assert "must be a string, a list of token ids, or a list of these" in response.json()["error"]


def test_a_batch_over_the_limit_is_422(embedder: RunningEmbedder, serve_embedder: ServeEmbedder) -> None:
    response = embedder.embed(["a"] * 33)
    assert response.status_code == 422
    assert response.json() == {"error": "batch size 33 > maximum allowed batch size 32", "error_type": "Validation"}
    assert embedder.embed(["a"] * 32).status_code == 200
    assert serve_embedder(max_client_batch_size=2).embed(["a"] * 3).status_code == 422


def test_what_was_cut_is_told(embedder: RunningEmbedder) -> None:
    inputs = [LONG, TEXT, ids_of(LONG)]
    assert embedder.embed(inputs).headers["x-truncated-inputs"] == "2"
    assert "x-truncated-inputs" not in embedder.embed(TEXT).headers
    answer = embedder.openai(inputs)
    assert (answer.headers["x-truncated-inputs"], answer.json()["usage"]["truncated_inputs"]) == ("2", 2)
    assert "truncated_inputs" not in embedder.openai(TEXT).json()["usage"]


def test_openai_takes_as_many_inputs_as_openai_does(serve_embedder: ServeEmbedder) -> None:
    """In chunks, because a line takes no more than 1,024 at once."""
    served = serve_embedder()
    served.engine.max_waiting = 256
    texts = [f"a {number}" for number in range(2048)]
    answer = served.openai(texts)
    assert answer.status_code == 200
    assert [item["index"] for item in answer.json()["data"]] == list(range(2048))
    np.testing.assert_allclose(answer.json()["data"][2047]["embedding"], served.embed(texts[-1]).json()[0], rtol=1e-6)
    assert served.engine.most_running <= 256
    refused = served.openai([*texts, "a"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    assert "batch size 2049 > maximum allowed batch size 2048" in refused.json()["error"]["message"]


def test_an_input_that_is_too_long_has_openais_code(serve_embedder: ServeEmbedder) -> None:
    answer = serve_embedder(auto_truncate=False).openai(LONG)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("token_id", [-1, embed_tokenizer().vocab_size, 2**63])
def test_an_unknown_token_id_is_422(embedder: RunningEmbedder, token_id: int) -> None:
    response = embedder.embed([[1, token_id, 2]])
    assert (response.status_code, response.json()["error_type"]) == (422, "Tokenizer")
    assert f"token id {token_id}, allowed: 0 to {embed_tokenizer().vocab_size - 1}" in response.json()["error"]


@pytest.mark.parametrize(
    ("field", "value"), [("truncation_direction", "up"), ("normalize", "perhaps"), ("dimensions", "many")]
)
def test_an_option_that_does_not_fit_is_422(embedder: RunningEmbedder, field: str, value: str) -> None:
    response = embedder.embed(TEXT, **{field: value})
    assert (response.status_code, response.json()["error_type"]) == (422, "Validation")
    assert field in response.json()["error"]
    assert repr(value) in response.json()["error"]


def test_a_body_that_is_no_json_is_400(embedder: RunningEmbedder) -> None:
    response = embedder.client.post("/embed", content=b"{", headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()) == (
        400,
        {"error": "Invalid JSON format", "error_type": "Validation"},
    )


def test_a_body_over_the_limit_is_413(serve_embedder: ServeEmbedder) -> None:
    response = serve_embedder(max_body_bytes=4_000, max_text_characters=1_000).embed("a" * 4_000)
    assert (response.status_code, response.json()["error_type"]) == (413, "PayloadTooLarge")


def test_a_full_line_is_429(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder()
    served.engine.max_waiting = 1
    response = served.embed([TEXT, TEXT])
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert response.json() == {"error": "Model is overloaded", "error_type": "Overloaded"}
    assert served.embed(TEXT).status_code == 200


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (ModelUnavailableError("dead"), 503, "Unhealthy"),
        (RequestTooLargeError("never"), 422, "Validation"),
        (RuntimeError("secret"), 500, "Internal"),
    ],
)
def test_failures_of_the_engine(serve_embedder: ServeEmbedder, failure: Exception, status: int, kind: str) -> None:
    served = serve_embedder()
    served.engine.failure = failure
    response = served.embed(TEXT)
    assert (response.status_code, response.json()["error_type"]) == (status, kind)
    assert "secret" not in response.text


@pytest.mark.parametrize("path", ["/embed", "/embed_all"])
def test_numbers_that_are_none_are_424(
    serve_embedder: ServeEmbedder, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve_embedder()
    monkeypatch.setattr("tests.service.embed_fakes.token_vectors", lambda ids: np.full((len(ids), WIDTH), np.nan))
    response = served.embed(TEXT, path)
    assert (response.status_code, response.json()["error_type"]) == (424, "Backend")


def test_a_vector_of_zeros_stays_one(serve_embedder: ServeEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_embedder()
    monkeypatch.setattr("tests.service.embed_fakes.pooled", lambda _: np.zeros(WIDTH, np.float32))
    assert served.embed(TEXT).json() == [[0.0] * WIDTH]


def test_a_late_request_is_504(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder(request_timeout_seconds=0.2)
    served.engine.hold()
    response = served.embed(TEXT)
    assert (response.status_code, response.json()["error_type"]) == (504, "Timeout")


def test_a_client_that_leaves_stops_the_work(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder()
    served.engine.hold()
    body = json.dumps({"inputs": ["a", "b"]}).encode()
    head = f"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1])), timeout=5)
    connection.sendall(head.encode() + body)
    wait_until(lambda: served.engine.num_running == 2)
    connection.close()
    wait_until(lambda: served.engine.num_cancelled == 2)
    wait_until(lambda: 'route="/embed",status="499"' in served.client.get("/metrics").text)


def test_keys(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder(api_keys="one,two")
    for headers in ({}, {"Authorization": "Bearer three"}):
        response = served.client.post("/embed", json={"inputs": TEXT}, headers=headers)
        assert (response.status_code, response.json()["error_type"]) == (401, "Authentication")
        assert response.headers["www-authenticate"] == "Bearer"
    response = served.client.post("/embed", json={"inputs": TEXT}, headers={"Authorization": "Bearer two"})
    assert response.status_code == 200


def test_models_are_chosen_by_name(serve_embedder: ServeEmbedder) -> None:
    second = FakeEmbeddingEngine()
    served = serve_embedder(models=lambda engine: [fake_embedder(engine), fake_embedder(second, name="other")])
    served.embed(TEXT)
    assert (len(served.engine.requests), len(second.requests)) == (1, 0)
    served.embed(TEXT, model="other")
    assert (len(served.engine.requests), len(second.requests)) == (1, 1)


def test_a_model_that_is_not_loaded_is_404(embedder: RunningEmbedder) -> None:
    response = embedder.embed(TEXT, model="none")
    assert (response.status_code, response.json()["error_type"]) == (404, "NotFound")
    assert response.json()["error"].endswith("model 'none' is not loaded, choose from: en-de, mini")


def test_a_model_for_another_task_is_400(embedder: RunningEmbedder) -> None:
    response = embedder.embed(TEXT, model="en-de")
    assert (response.status_code, response.json()["error_type"]) == (400, "Validation")
    assert "is for the task translate, not for embed, choose from: mini" in response.json()["error"]
