"""The clients that people have for embeddings, unchanged."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from langchain_openai import OpenAIEmbeddings
from pydantic import SecretStr

from tests.service.conftest import RunningEmbedder, ServeEmbedder
from tests.service.embed_fakes import embed_tokenizer

TEXTS = ["the house is old", "where is the key"]


@pytest.fixture
def client(embedder: RunningEmbedder) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{embedder.url}/v1", api_key="none", max_retries=0)


def test_openai_asks_for_base64_and_gives_numbers(embedder: RunningEmbedder, client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="mini", input=TEXTS)
    np.testing.assert_allclose([item.embedding for item in answer.data], embedder.embed(TEXTS).json(), rtol=1e-6)
    assert answer.usage.total_tokens > 0


def test_openai_with_an_encoding_format(embedder: RunningEmbedder, client: openai.OpenAI) -> None:
    (expected,) = embedder.embed(TEXTS[0], dimensions=4).json()
    (numbers,) = client.embeddings.create(model="mini", input=TEXTS[0], encoding_format="float", dimensions=4).data
    assert numbers.embedding == expected
    (text,) = client.embeddings.create(model="mini", input=TEXTS[0], encoding_format="base64", dimensions=4).data
    vector = np.frombuffer(base64.b64decode(str(text.embedding)), dtype="<f4")
    np.testing.assert_allclose(vector, expected, rtol=1e-6)


def test_openai_with_token_ids(embedder: RunningEmbedder, client: openai.OpenAI) -> None:
    ids = [encoding.ids for encoding in embed_tokenizer().encodings(TEXTS)]
    answer = client.embeddings.create(model="mini", input=ids)
    np.testing.assert_allclose([item.embedding for item in answer.data], embedder.embed(TEXTS).json(), rtol=1e-6)


def test_openai_sees_errors_as_its_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="choose from: en-de, mini") as caught:
        client.embeddings.create(model="none", input="a")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="cannot be empty"):
        client.embeddings.create(model="mini", input="")


def test_openai_sees_a_wrong_key_and_a_full_line(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder(api_keys="one")
    served.engine.max_waiting = 0
    wrong, right = (openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0) for key in ("two", "one"))
    with pytest.raises(openai.AuthenticationError):
        wrong.models.list()
    with pytest.raises(openai.RateLimitError):
        right.embeddings.create(model="mini", input="a")


def test_openai_lists_the_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["en-de", "mini"]
    assert client.models.retrieve("mini").owned_by == "polyhead"


def test_huggingface_hub(embedder: RunningEmbedder) -> None:
    client = InferenceClient(model=f"{embedder.url}/embed")
    found = client.feature_extraction(TEXTS[0], normalize=False, truncate=True, truncation_direction="left")
    expected = embedder.embed(TEXTS[0], normalize=False).json()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float32))
    by_prompt = client.feature_extraction(TEXTS[0], prompt_name="query")
    np.testing.assert_allclose(by_prompt, embedder.embed(TEXTS[0], prompt_name="query").json(), rtol=1e-6)


def test_huggingface_hub_sees_our_message(embedder: RunningEmbedder) -> None:
    client = InferenceClient(model=f"{embedder.url}/embed")
    with pytest.raises(HfHubHTTPError) as caught:
        client.feature_extraction("a", prompt_name="none")
    assert caught.value.response.status_code == 422


def test_langchain(embedder: RunningEmbedder) -> None:
    client = OpenAIEmbeddings(
        model="mini",
        openai_api_base=f"{embedder.url}/v1",
        openai_api_key=SecretStr("none"),
        check_embedding_ctx_length=False,
    )
    expected = embedder.embed(TEXTS).json()
    np.testing.assert_allclose(client.embed_documents(TEXTS), expected, rtol=1e-6)
    assert client.embed_query(TEXTS[0]) == pytest.approx(expected[0])
