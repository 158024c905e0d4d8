"""Clients that leave, deadlines, nonsense, damage, and an end in the middle of work."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.conftest import PATIENCE_SECONDS, ROOT, Server, Workshop, number_words, serving


def heavy_work() -> dict[str, object]:
    """As much as one request may ask for: seconds of work even for a model as small as this."""
    texts = [source for source, _ in number_words(seed=6, count=256, longest=10)]
    return {"q": texts, "source": "en", "target": "de", "beam_size": 8, "alternatives": 7}


def test_a_client_that_leaves_frees_its_rows(server: Server) -> None:
    body = json.dumps(heavy_work()).encode()
    departures = 'polyhead_requests_total{method="POST",route="/translate",status="499"}'
    seen, steps = server.metric(departures), server.metric("polyhead_steps_total{")
    port = int(server.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        server.wait_for_rows(in_use=True)
        end = time.monotonic() + PATIENCE_SECONDS
        while server.metric("polyhead_steps_total{") == steps:  # rows are taken before the first step has ended
            assert time.monotonic() < end
    server.wait_for_rows(in_use=False)
    end = time.monotonic() + PATIENCE_SECONDS
    while server.metric(departures) == seen:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert server.translate("one two").json() == {"translatedText": "eins zwei"}


def test_a_request_that_takes_too_long(workshop: Workshop) -> None:
    with serving(workshop.bundles, request_timeout_seconds=0.2, health_timeout_seconds=PATIENCE_SECONDS) as server:
        answer = server.client.post("/translate", json=heavy_work())
        assert answer.status_code == 504
        assert answer.json()["error_type"] == "timeout"
        server.wait_for_rows(in_use=False)
        assert server.client.get("/health").json()["status"] == "ok"


def test_a_text_over_the_limit(server: Server) -> None:
    answer = server.translate("one " * 30_000)
    assert answer.status_code == 400
    assert answer.json()["error"] == "Invalid request: request (120000) exceeds text limit (100000)"


def test_a_body_that_is_no_json(server: Server) -> None:
    answer = server.client.post("/translate", content=b'{"q": ', headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json() == {"error": "Invalid JSON format", "error_type": "validation"}


def test_a_damaged_bundle_is_not_served(workshop: Workshop, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(workshop.bundles / "numbers", tmp_path / "numbers"))
    largest = max((path for path in bundle.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "service", "--bundles", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("polyhead: ")
    assert largest.name in line
    assert "has SHA-256" in line


def test_sigterm_under_load_answers_everything_that_was_accepted(workshop: Workshop) -> None:
    num_clients, num_texts = 32, 12
    texts = [source for source, _ in number_words(seed=7, count=num_texts)]

    with (
        serving(
            workshop.bundles, request_timeout_seconds=PATIENCE_SECONDS, drain_timeout_seconds=PATIENCE_SECONDS
        ) as server,
        ThreadPoolExecutor(num_clients) as clients,
    ):
        alone = server.translate(texts, beam_size=8).json()
        assert all(alone["translatedText"])
        answers = [clients.submit(server.translate, texts, beam_size=8) for _ in range(num_clients)]
        end = time.monotonic() + PATIENCE_SECONDS
        while (
            server.metric("polyhead_queue_seconds_count{") + server.metric("polyhead_waiting_requests{")
            < (num_clients + 1) * num_texts
        ):
            assert time.monotonic() < end
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for answer in answers:
            assert answer.result().status_code == 200
            assert answer.result().json() == alone
        assert server.process.wait(PATIENCE_SECONDS) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url)
