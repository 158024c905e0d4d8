"""The generation bundle that ships, as it is served."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.heads.registry import load_models
from service.settings import Settings

BUNDLE = Path(__file__).parents[2] / "bundles" / "generate-en"
PROMPT = "It was a dark night, and the captain"
PROSE = (
    "The old gentleman put down his newspaper and looked at her over his spectacles. She had come in from the "
    "garden, and there was a little colour in her cheeks. “You have been a long time,” he said, “and your aunt has "
    "asked for you twice.”"
)


@pytest.fixture(scope="module", params=["int8", "fp32"])
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(bundles=BUNDLE, precision=request.param), load_models)) as client:
        yield client


def generate(client: TestClient, prompt: str, **parameters: Any) -> dict[str, Any]:
    answer = client.post("/generate", json={"inputs": prompt, "parameters": {"details": True, **parameters}})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def test_a_seed_gives_the_same_text(client: TestClient) -> None:
    texts = [
        generate(client, PROMPT, max_new_tokens=20, temperature=0.8, seed=seed)["generated_text"] for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_it_expects_prose_more_than_the_same_words_shuffled(client: TestClient) -> None:
    def perplexity(text: str) -> float:
        details = generate(client, text, max_new_tokens=1, decoder_input_details=True)["details"]
        log_probs = [token["logprob"] for token in details["prefill"][1:]]
        return math.exp(-sum(log_probs) / len(log_probs))

    words = PROSE.split()
    assert perplexity(PROSE) < 100
    assert perplexity(" ".join(sorted(words))) > 2 * perplexity(PROSE)


def test_text_goes_on_in_words(client: TestClient) -> None:
    text = generate(client, PROMPT, max_new_tokens=40)["generated_text"]
    assert text.startswith(" ")
    assert len(text.split()) >= 20


def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(client: TestClient) -> None:
    answer = client.post("/generate", json={"inputs": PROSE * 8, "parameters": {"max_new_tokens": 5}})
    assert answer.status_code == 422
    assert "256" in answer.json()["error"]


def test_its_attention_can_be_seen(client: TestClient) -> None:
    answer = client.post("/attention", json={"prompt": PROMPT, "layers": [0], "heads": [0]})
    assert answer.status_code == 200, answer.text
    maps, tokens = answer.json()["maps"]["decoder"], answer.json()["target"]["tokens"]
    assert maps["shape"] == [1, 1, len(tokens), len(tokens)]
    rows = np.array(maps["weights"])[0, 0]
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-3)
    assert (np.triu(rows, 1) == 0).all()


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in BUNDLE.iterdir()) <= 10_000_000
