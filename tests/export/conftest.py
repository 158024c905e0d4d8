"""Tiny checkpoints, and the bundles that they are exported to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from export.convert import ExportOptions, export_bundle
from model.checkpoint import Checkpoint
from model.tokenizer import Tokenizer, language_tag, train
from tests.export.models import make_model

METADATA = {
    "task": "translate",
    "languages": ["de", "en"],
    "directions": [["en", "de"], ["de", "en"]],
    "training": {"bleu": 12.5},
    "licence": "CC-BY-2.0",
}


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    texts = ["der hund und die katze", "the dog and the cat"]
    return train(texts, 320, extra_tokens=[language_tag("de"), language_tag("en")])


@pytest.fixture(scope="session")
def checkpoint(tokenizer: Tokenizer) -> Checkpoint:
    """A checkpoint that is stored in float16, as the shipped one is."""
    model = make_model(vocab_size=tokenizer.vocab_size)
    model.load_state_dict({name: tensor.half().float() for name, tensor in model.state_dict().items()})
    return Checkpoint(model, tokenizer, METADATA, torch.float16)


@pytest.fixture(scope="session")
def bundle_folder(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of all precisions, exported once. Tests that damage it use `copy_of_bundle`."""
    folder = tmp_path_factory.mktemp("bundles") / "tiny"
    export_bundle(checkpoint, folder, ExportOptions(precisions=("fp32", "int8", "int4", "fp16")))
    return folder


ALIGNMENT = {"layer": 0, "head": 1, "shifted": True, "aggregate": "none", "error_rate": 0.25}


@pytest.fixture(scope="session")
def with_attention(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Path]:
    """A checkpoint that says how it aligns best, and its bundle with the graph of maps. Nobody damages it.

    Wide enough that no matrix is small enough to stand in a graph.
    """
    model = make_model(vocab_size=tokenizer.vocab_size, num_encoder_layers=2, d_model=64, d_ff=96)
    checkpoint = Checkpoint(model, tokenizer, METADATA | {"alignment": ALIGNMENT})
    folder = tmp_path_factory.mktemp("bundles") / "attention"
    export_bundle(checkpoint, folder, ExportOptions(precisions=("fp32",), attention=True))
    return checkpoint, folder


@pytest.fixture
def copy_of_bundle(bundle_folder: Path, tmp_path: Path) -> Callable[[], Path]:
    def copy() -> Path:
        return Path(shutil.copytree(bundle_folder, tmp_path / "copy"))

    return copy
