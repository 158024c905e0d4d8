"""What every test needs, and which tests are left out where PyTorch is not installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.imports import ROOT, needed_packages

# Packages of the extra `dev` that `test` leaves out, by the names that they are imported under.
HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "onnx",
    "onnx_ir",
    "onnxscript",
    "safetensors",
    "sentencepiece",
    "sacrebleu",
    "rich",
    "ctranslate2",
    "langchain_openai",
    "playwright",
)
MISSING = frozenset(name for name in HEAVY if find_spec(name) is None)


def is_left_out(path: Path) -> bool:
    """Whether a file, or a folder with its conftest.py, cannot be imported without a package that is missing."""
    path = path / "conftest.py" if path.is_dir() else path
    return bool(MISSING) and path.suffix == ".py" and path.is_file() and bool(needed_packages(path) & MISSING)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if is_left_out(collection_path) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if MISSING:
        tests = sorted((ROOT / "tests").rglob("test_*.py"))
        left_out = [path for path in tests if any(map(is_left_out, (path, *path.parents)))]
        terminalreporter.section(f"{len(left_out)} of {len(tests)} files were left out")
        terminalreporter.line(f"They need {', '.join(sorted(MISSING))}; `make test` runs them.")
        for path in left_out:
            terminalreporter.line(str(path.relative_to(ROOT)))


@pytest.fixture(autouse=True, scope="module")
def subnormal_numbers() -> Iterator[None]:
    """Numbers below the normal range again, after tests that opened a session here.

    ONNX Runtime takes them for zero in the thread that opens one with `session.set_denormal_as_zero`. In the service
    that is a thread of its own; here Hypothesis then refuses to draw any.
    """
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)
