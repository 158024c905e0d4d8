"""A folder to alter; it is written once and copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.model.importing.folders import make_theirs, write_folder


@pytest.fixture(scope="session")
def _bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("theirs") / "tiny-bert", make_theirs("bert"))


@pytest.fixture
def folder(_bert_folder: Path, tmp_path: Path) -> Path:
    """A tiny BERT with a pooler, as transformers writes it."""
    return Path(shutil.copytree(_bert_folder, tmp_path / "tiny-bert"))
