"""Our own fields of POST /translate with the translation bundle that ships."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.heads.registry import load_models
from service.settings import Settings

BUNDLE = Path(__file__).parents[2] / "bundles" / "en-de"
TEXT = "Good morning, my friend. The house is old.\n- She reads a book."


@pytest.fixture(scope="module", params=["int8", "fp32"])
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(bundles=BUNDLE, precision=request.param), load_models)) as client:
        yield client


def translate(client: TestClient, **fields: Any) -> str:
    answer = client.post("/translate", json={"q": TEXT, "source": "en", "target": "de"} | fields)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["translatedText"])


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("prefix", ["Guten Tag", "Hallo 42"])
def test_the_translation_goes_on_from_its_prefix(client: TestClient, prefix: str, beam_size: int) -> None:
    plain, forced = (translate(client, beam_size=beam_size, target_prefix=given) for given in ("", prefix))
    assert forced.startswith(prefix)
    assert "Freund" in forced
    assert forced.partition("Freund.")[2] == plain.partition("Freund.")[2] != ""  # the other sentences are the same


def test_a_seed_draws_the_same_translation_whole_and_streamed(client: TestClient) -> None:
    fields = {"temperature": 1.5, "top_k": 50}
    drawn = [translate(client, seed=seed, **fields) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    body = {"q": TEXT, "source": "en", "target": "de", "stream": True, "seed": 1} | fields
    blocks = client.post("/translate", json=body).text.strip().split("\n\n")
    *sentences, last = [json.loads(block.removeprefix("data:")) for block in blocks]
    assert len(sentences) == 3
    assert "".join(sentence["text"] for sentence in sentences) == last["translatedText"] == drawn[0]
