"""Models from a hub: the real client in a process of its own, against a small hub on the loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from model.checkpoint import load_checkpoint
from model.importing.hub import is_repository

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROOT = Path(__file__).resolve().parents[3]


class Hub:
    """Serves one folder as the repository `owner/tiny`, to a token if one is wanted, and remembers what was asked."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self.folder, self.token = folder, token
        self.requests: list[tuple[str, str]] = []
        self.agents: set[str] = set()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                hub.answer(self)

            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the base class
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append((handler.command, handler.path))
        self.agents.add(handler.headers.get("User-Agent", ""))
        if self.token is not None and handler.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(handler, 401, b"{}", {"X-Error-Code": "GatedRepo"})
        path = handler.path.partition("?")[0]
        if path.startswith("/api/models/owner/tiny"):
            names = [file.relative_to(self.folder).as_posix() for file in self.folder.rglob("*") if file.is_file()]
            info = {"id": "owner/tiny", "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
            if "/tree/" in path:
                info = [  # type: ignore[assignment]
                    {"type": "file", "path": name, "size": (self.folder / name).stat().st_size, "oid": "0" * 40}
                    for name in names
                ]
            return self.send(handler, 200, json.dumps(info).encode(), {"Content-Type": "application/json"})
        prefix, _, name = path.partition("/resolve/")
        file = self.folder / name.partition("/")[2]
        if prefix == "/owner/tiny" and file.is_file():
            content = file.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            return self.send(handler, 200, content, {"ETag": etag, "X-Repo-Commit": COMMIT})
        return self.send(handler, 404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def send(self, handler: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str]) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content)


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    (folder / "README.md").write_text("---\nlicense: mit\n---\n", "utf-8")
    (folder / "tf_model.h5").write_bytes(b"not fetched")
    hub = Hub(folder)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


def run(hub: Hub, tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    values = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), **environment}
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        if name not in environment:
            values.pop(name, None)
    command = [sys.executable, "-m", "model", "import", *arguments]
    return subprocess.run(command, cwd=ROOT, env=values, capture_output=True, text=True, timeout=300, check=False)


def test_a_model_of_the_hub_is_fetched_imported_and_recorded(hub: Hub, tmp_path: Path) -> None:
    target = tmp_path / "ours"
    found = run(hub, tmp_path, "owner/tiny", str(target))
    assert found.returncode == 0, found.stderr
    metadata = load_checkpoint(target).metadata
    assert metadata["name"] == "tiny"
    assert metadata["licence"] == "mit"
    assert (metadata["source"]["repository"], metadata["source"]["commit"]) == ("owner/tiny", COMMIT)
    assert not [path for _, path in hub.requests if "tf_model" in path or "telemetry" in path]
    # What is in the cache is enough.
    asked = len(hub.requests)
    again = run(hub, tmp_path, "owner/tiny", str(target), "--force", HF_HUB_OFFLINE="1")
    assert again.returncode == 0, again.stderr
    assert len(hub.requests) == asked


def test_a_token_opens_what_is_gated_and_a_refusal_is_one_line(hub: Hub, tmp_path: Path) -> None:
    hub.token = "secret"
    refused = run(hub, tmp_path, "owner/tiny", str(tmp_path / "ours"))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: owner/tiny cannot be fetched from {hub.url}: ")
    assert "secret" not in refused.stderr
    found = run(hub, tmp_path, "owner/tiny", str(tmp_path / "ours"), "--revision", "v1", HF_TOKEN="secret")
    assert found.returncode == 0, found.stderr
    assert any("/revision/v1" in path or "/resolve/v1/" in path for _, path in hub.requests)


def test_what_is_not_there_is_told(hub: Hub, tmp_path: Path) -> None:
    found = run(hub, tmp_path, "owner/other", str(tmp_path / "ours"))
    assert found.returncode == 2
    assert "error: owner/other cannot be fetched from" in found.stderr
    offline = run(hub, tmp_path, "owner/tiny", str(tmp_path / "ours"), HF_HUB_OFFLINE="1")
    assert "error: owner/tiny cannot be fetched from" in offline.stderr
    assert "Traceback" not in offline.stderr


def test_repositories_have_an_owner_and_a_name() -> None:
    assert is_repository("Helsinki-NLP/opus-mt-en-de")
    assert not [text for text in ("opus", "a/b/c", "/a/b", "../b", "a/", "./b") if is_repository(text)]
