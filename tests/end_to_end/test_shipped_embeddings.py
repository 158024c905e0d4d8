"""The embedding bundle that ships, as it is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from service.app import create_app
from service.heads.registry import load_models
from service.settings import Settings

BUNDLE = Path(__file__).parents[2] / "bundles" / "embed-en-de"
PAIRS = (
    ("Where is the station?", "Wo ist der Bahnhof?"),
    ("The weather is fine today.", "Das Wetter ist heute schön."),
    ("She has never been to Paris.", "Sie war noch nie in Paris."),
    ("The children are playing in the garden.", "Die Kinder spielen im Garten."),
    ("How much does this book cost?", "Wie viel kostet dieses Buch?"),
    ("I have to work tomorrow.", "Ich muss morgen arbeiten."),
    ("The file could not be opened.", "Die Datei konnte nicht geöffnet werden."),
    ("We thank the Commission for its report.", "Wir danken der Kommission für ihren Bericht."),
)


@pytest.fixture(scope="module", params=["int8", "fp32"])
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(bundles=BUNDLE, precision=request.param), load_models)) as client:
        yield client


def embed(client: TestClient, *texts: str) -> NDArray[np.float64]:
    answer = client.post("/embed", json={"inputs": list(texts)})
    assert answer.status_code == 200, answer.text
    return np.array(answer.json())


@pytest.mark.parametrize("words", [("king", "queen", "dog"), ("König", "Königin", "Hund")])
def test_king_is_nearer_to_queen_than_to_dog(client: TestClient, words: tuple[str, str, str]) -> None:
    king, queen, dog = embed(client, *words)
    assert king @ queen > king @ dog


def test_each_sentence_finds_its_translation(client: TestClient) -> None:
    english, german = (embed(client, *column) for column in zip(*PAIRS, strict=True))
    assert (english @ german.T).argmax(axis=0).tolist() == list(range(len(PAIRS)))
    assert (english @ german.T).argmax(axis=1).tolist() == list(range(len(PAIRS)))


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in BUNDLE.iterdir()) <= 10_000_000
