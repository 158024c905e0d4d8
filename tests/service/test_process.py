"""The server as a process of its own: how it starts, refuses to start, and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

HOLDING_SERVER = '''
import asyncio, sys
from service.logs import configure_logging
from service.operations.metrics import Metrics
from service.models.registry import ModelRegistry
from service.http.access import open_access
from service.server import serve
from service.settings import load_settings
from tests.service.fakes import FakeEngine, fake_model, tiny_tokenizer

class HoldingEngine(FakeEngine):
    """Answers nothing until three seconds after its sixteenth request."""

    async def run(self, requests):
        if self.num_running + len(requests) == 16:
            asyncio.get_running_loop().call_later(3, self.release)
        return await super().run(requests)

engine = HoldingEngine(tiny_tokenizer())
engine.hold()
settings = load_settings()
configure_logging(settings.log_level)
sys.exit(serve(settings, ModelRegistry([fake_model(engine)]), Metrics(), open_access(settings)))
'''


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def holding_server(
    *arguments: str, hangup: signal.Handlers = signal.SIG_DFL
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that is started with SIGHUP as `hangup`, whatever the shell that runs the tests has set."""
    port = free_port()
    command = [sys.executable, "-c", HOLDING_SERVER, "--port", str(port), *arguments]
    before = signal.signal(signal.SIGHUP, hangup)
    try:
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    with server as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, process)
            yield process, url
        finally:
            process.kill()


def wait_for(url: str, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 90
    while True:
        try:
            httpx.get(f"{url}/languages")
        except httpx.TransportError:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        else:
            return


def translate(client: httpx.Client, number: int) -> httpx.Response:
    return client.post("/translate", json={"q": f"Text {number}.", "source": "en", "target": "de"})


def wait_for_rows(client: httpx.Client, count: int) -> None:
    """Until `count` sentences are with the engine."""
    end = time.monotonic() + 30
    while f'polyhead_active_rows{{model="en-de"}} {count:.1f}' not in client.get("/metrics").text:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_sigterm_answers_what_was_accepted_and_ends_with_0(number: signal.Signals) -> None:
    with (
        holding_server() as (process, url),
        httpx.Client(base_url=url, timeout=60) as client,
        ThreadPoolExecutor(16) as pool,
    ):
        answers = [pool.submit(translate, client, number) for number in range(16)]
        wait_for_rows(client, 16)
        process.send_signal(number)
        for index, answer in enumerate(answers):
            assert answer.result().json() == {"translatedText": f"TEXT {index}."}
        _, log = process.communicate(timeout=30)
        with pytest.raises(httpx.ConnectError):
            client.get("/languages")
    assert process.returncode == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert sum(line.get("route") == "/translate" for line in lines) == 16


def test_a_server_that_nohup_started_stays_when_its_terminal_is_closed() -> None:
    ignored = holding_server(hangup=signal.SIG_IGN)  # as nohup leaves it to what it starts
    with ignored as (process, url), httpx.Client(base_url=url, timeout=60) as client:
        process.send_signal(signal.SIGHUP)
        assert client.get("/languages").status_code == 200
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_the_drain_has_an_end() -> None:
    with (
        holding_server("--drain-timeout-seconds", "1") as (process, url),
        httpx.Client(base_url=url, timeout=60) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(translate, client, 1)
        wait_for_rows(client, 1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert answer.result().status_code == 503
        assert answer.result().json() == {"error": "The server is shutting down", "error_type": "unhealthy"}
    assert process.returncode == 0


def test_a_taken_port_ends_with_1() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-c", HOLDING_SERVER, "--port", str(taken.getsockname()[1])]
        result = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert result.returncode == 1
    assert "address already in use" in result.stderr


def run_service(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=os.environ | environment,
    )


def test_bad_settings_end_with_2_and_a_line_each() -> None:
    result = run_service("--port", "0x", POLYHEAD_DEVICE="tpu")
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert [line.split(" is ")[0] for line in lines] == [
        "polyhead: POLYHEAD_PORT (--port)",
        "polyhead: POLYHEAD_DEVICE (--device)",
    ]


def test_a_missing_bundle_ends_with_2_and_says_what_to_do(tmp_path: Path) -> None:
    result = run_service("--bundles", str(tmp_path))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"polyhead: there is no bundle in {tmp_path}: make one with `python -m export`")


def test_a_damaged_bundle_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format_version": 99}')
    result = run_service("--bundles", str(tmp_path))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "format_version 99" in line


def test_help_ends_with_0() -> None:
    result = run_service("--help")
    assert result.returncode == 0
    assert "--max-text-characters" in result.stdout
