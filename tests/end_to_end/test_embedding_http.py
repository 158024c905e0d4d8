"""A tiny encoder on its whole way: exported, loaded, and served over real HTTP to the clients that people have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from langchain_openai import OpenAIEmbeddings
from numpy.typing import NDArray
from pydantic import SecretStr

from service.engine.core.observer import NullObserver
from service.heads.registry import load_models
from service.settings import Settings
from tests.service.conftest import Running, running
from tests.service.runtime.embedding_bundles import MAX_TOKENS, export_encoder, make_encoder

NUM_CLIENTS = 64


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("bundles")
    for name, pooling in (("first", "mean"), ("second", "cls")):
        export_encoder(make_encoder(), folder / name, pooling=pooling)
    settings = Settings(bundles=folder, precision="fp32")
    with running(lambda _: load_models(settings, lambda _: NullObserver()).models) as server:
        yield server


def embed(served: Running, text: str, **fields: object) -> NDArray[np.float32]:
    response = served.client.post("/embed", json={"inputs": text} | fields)
    assert response.status_code == 200, response.text
    return np.array(response.json()[0], dtype=np.float32)


def mixed_texts() -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices("abc ", k=rng.choice([1, 3, 10, 30, 90, 400]))) + "a" for _ in range(NUM_CLIENTS)]


def test_the_clients_agree(served: Running) -> None:
    text = "a b c a"
    expected = embed(served, text)
    assert np.linalg.norm(expected) == pytest.approx(1, abs=1e-6)
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    for answer in (
        client.embeddings.create(model="first", input=text),
        client.embeddings.create(model="first", input=text, encoding_format="float"),
    ):
        np.testing.assert_allclose(answer.data[0].embedding, expected, atol=1e-6)
    hub = InferenceClient(model=f"{served.url}/embed")
    np.testing.assert_allclose(hub.feature_extraction(text), [expected], atol=1e-6)
    chain = OpenAIEmbeddings(
        model="first",
        openai_api_base=f"{served.url}/v1",
        openai_api_key=SecretStr("none"),
        check_embedding_ctx_length=False,
    )
    np.testing.assert_allclose(chain.embed_query(text), expected, atol=1e-6)


def test_models_differ_by_name(served: Running) -> None:
    models = [model["id"] for model in served.client.get("/v1/models").json()["data"]]
    assert models == ["first", "second"]
    assert served.client.get("/health?details=1").json()["models"] == {"first": "ok", "second": "ok"}
    first, second = (embed(served, "a b c a", model=name) for name in models)
    assert not np.allclose(first, second, atol=1e-3)


def test_a_long_text_is_cut_to_what_the_model_reads(served: Running) -> None:
    response = served.client.post("/embed", json={"inputs": "a b c " * 100})
    assert (response.status_code, response.headers["x-compute-tokens"]) == (200, str(MAX_TOKENS))
    response = served.client.post("/embed", json={"inputs": "a b c " * 100, "truncate": False})
    assert response.status_code == 422


def test_batched_equals_single_under_many_clients(served: Running) -> None:
    texts = mixed_texts()
    alone = [embed(served, text) for text in texts]
    with (
        httpx.Client(base_url=served.url, timeout=60, limits=httpx.Limits(max_connections=NUM_CLIENTS)) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as pool,
    ):
        together = list(pool.map(lambda text: client.post("/embed", json={"inputs": text}).json()[0], texts * 3))
    np.testing.assert_allclose(np.array(together), np.array(alone * 3), atol=1e-6)


def test_token_vectors_pool_to_the_vector_of_the_text(served: Running) -> None:
    tokens = np.array(served.client.post("/embed_all", json={"inputs": "a b c a"}).json()[0])
    np.testing.assert_allclose(tokens.mean(axis=0), embed(served, "a b c a", normalize=False), atol=1e-5)
