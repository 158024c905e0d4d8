"""The image's build is given all that it copies."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_what_the_dockerfile_copies_is_not_left_out() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    assert {"requirements", "bundles"} <= names
    assert names == let_in
    assert all((ROOT / name).exists() for name in names)
