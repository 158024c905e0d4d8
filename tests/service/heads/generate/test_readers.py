"""Clients that read as it comes, leave, or read too slowly."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.service.conftest import wait_until
from tests.service.generation_fakes import SAID, says
from tests.service.generation_http import RunningGenerator, events
from tests.service.heads.generate.conftest import ServeGenerator

BODIES: dict[str, dict[str, Any]] = {
    "/generate_stream": {"inputs": "a b"},
    "/v1/completions": {"prompt": "a b", "stream": True, "n": 2, "max_tokens": 60},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a b"}], "stream": True},
}


@pytest.fixture(params=sorted(BODIES))
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def num_streams(path: str) -> int:
    return int(BODIES[path].get("n", 1))


def lines(response: httpx.Response) -> Iterator[str]:
    return (line for line in response.iter_lines() if line)


def test_the_first_token_comes_at_once(generator: RunningGenerator, path: str) -> None:
    generator.engine.num_free = 1
    with generator.client.stream("POST", path, json=BODIES[path]) as response:
        found = lines(response)
        first = next(found)  # the engine says no more until it is released
        generator.engine.release()
        assert first.startswith("data:")
        assert len(list(found)) > 2


def test_a_client_that_leaves_frees_its_rows(generator: RunningGenerator, path: str) -> None:
    generator.engine.num_free = 1
    with generator.client.stream("POST", path, json=BODIES[path]) as response:
        found = lines(response)  # kept, because forgetting it would close the connection
        next(found)
        assert generator.engine.num_running == num_streams(path)
    wait_until(lambda: generator.engine.num_running == 0)
    assert generator.engine.num_steps == num_streams(path)


def test_a_client_that_leaves_while_all_is_collected(generator: RunningGenerator) -> None:
    generator.engine.num_free = 2
    body = json.dumps({"inputs": "a b", "parameters": {"best_of": 2, "do_sample": True}}).encode()
    with connect(generator, "/generate", body):
        wait_until(lambda: generator.engine.num_steps == 4)
        assert generator.engine.num_running == 2
    wait_until(lambda: generator.engine.num_running == 0)


def test_a_slow_reader_holds_up_nobody(generator: RunningGenerator) -> None:
    """One that reads nothing of an answer larger than all buffers on its way."""
    generator.engine.script = lambda request: says("one two three " * 40_000)
    body = json.dumps({"inputs": "a b", "parameters": {"max_new_tokens": 60, "top_n_tokens": 5}}).encode()
    slow = [connect(generator, "/generate_stream", body) for _ in range(4)]
    try:
        generator.engine.script = lambda request: says(SAID)
        for _ in range(3):
            assert events(generator.generate_stream())[-1]["generated_text"] == SAID
    finally:
        for connection in slow:
            connection.close()


def test_an_answer_that_nobody_reads_in_time_is_dropped(
    serve_generator: ServeGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is the request's, and some more for what is on its way."""
    monkeypatch.setattr("service.http.event_stream.SECONDS_FOR_THE_LAST_EVENT", 0.1)
    served = serve_generator(request_timeout_seconds=1)
    served.engine.num_free = 1
    with served.client.stream("POST", "/generate_stream", json=BODIES["/generate_stream"]) as response:
        assert response.status_code == 200
        found = lines(response)
        next(found)
        with pytest.raises(httpx.RemoteProtocolError):
            next(found)
    wait_until(lambda: served.engine.num_running == 0)


def test_streams_run_side_by_side(generator: RunningGenerator) -> None:
    generator.engine.num_free = 1
    texts: list[str] = []

    def read() -> None:
        with httpx.Client(base_url=generator.url, timeout=10) as client:
            texts.append(events(client.post("/generate_stream", json={"inputs": "a b"}))[-1]["generated_text"])

    threads = [threading.Thread(target=read) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: generator.engine.num_steps == 5)
    generator.engine.release()
    for thread in threads:
        thread.join(10)
    assert texts == [SAID] * 5


def connect(served: RunningGenerator, path: str, body: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1])), timeout=5)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection
