"""What the tests of `model` share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.tokenizer import Tokenizer


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """The models are too small to share, and a second thread would only wait for the first."""
    if (torch := sys.modules.get("torch")) is None:
        yield  # of the tests that need no model
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    from tests.model.samples import tiny_tokenizer

    return tiny_tokenizer()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The real texts, where there are any: they are no part of the repository."""
    folder = os.environ.get("POLYHEAD_DATA")
    if not folder:
        pytest.skip("POLYHEAD_DATA does not name a folder of texts")
    return Path(folder)
