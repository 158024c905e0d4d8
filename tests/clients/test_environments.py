"""Clients that do not fit beside the project, each in an environment of its own, which `make test-clients` makes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.all_heads import All, running_all

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (ROOT / "requirements" / "clients").glob("*.txt"))


@pytest.fixture(scope="module")
def served() -> Iterator[All]:
    with running_all() as found:
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_every_call_does_what_its_users_expect(served: All, name: str) -> None:
    python = ROOT / f".venv-clients-{name}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no .venv-clients-{name}: make test-clients makes it, which needs the network")
    ran = subprocess.run(
        [python, "-m", f"tests.clients.{name}", served.url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line for line in lines if line.startswith("ok ")]
    assert not [line for line in lines if line.startswith("failed ")], ran.stdout
