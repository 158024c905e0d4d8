"""Every command and program of the README that asks the server, run as it stands, against the bundles that ship."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import serving

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:8000"
BLOCKS = re.findall(
    r"^```(sh|python)\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
COMMANDS = [text for language, text in BLOCKS if language == "sh" and text.startswith("curl ")]
PROGRAMS = [text for language, text in BLOCKS if language == "python"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(ROOT / "bundles") as served:
        yield served.url


def test_the_readme_has_what_is_run_here() -> None:
    assert len(COMMANDS) >= 4
    assert PROGRAMS
    assert all(ADDRESS in text for text in COMMANDS + PROGRAMS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda text: text.split()[1].rsplit("/", 1)[-1])
def test_a_command(url: str, command: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    script = command.replace(ADDRESS, url).replace("curl ", "curl --silent --show-error --fail-with-body ")
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    written = [path.read_bytes() for path in tmp_path.iterdir()]
    assert ran.stdout or written[0].startswith(b"\x89PNG")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(url: str, program: str) -> None:
    text = program.replace(ADDRESS, url)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() not in {"", "Good morning."}
