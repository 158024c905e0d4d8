"""Connections that send nothing, too little or too much, and those that are too many."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from uvicorn.server import ServerState

from service.http.connections import MAX_PIPELINED, ConnectionGuard, ConnectionLimits, allowed_connections
from tests.service.conftest import Running, Serve, wait_until

REQUEST = b"GET /languages HTTP/1.1\r\nHost: x\r\n\r\n"


@contextlib.contextmanager
def connected(served: Running) -> Iterator[socket.socket]:
    address = "127.0.0.1", int(served.url.rsplit(":", 1)[1])
    with socket.create_connection(address, timeout=10) as connection:
        yield connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def closed(served: Running, reason: str) -> float:
    found = [line for line in served.client.get("/metrics").text.splitlines() if f'reason="{reason}"' in line]
    return sum(float(line.split()[-1]) for line in found if line.startswith("polyhead_closed_connections_total"))


def test_a_connection_that_says_nothing_is_closed(serve: Serve) -> None:
    served = serve(header_timeout_seconds=0.5)
    with connected(served) as connection:
        assert read_all(connection) == b""
    assert closed(served, "slow_headers") == 1


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost:", b"POST", b"\r\n"])
def test_half_a_header_is_answered_and_closed(serve: Serve, sent: bytes) -> None:
    served = serve(header_timeout_seconds=0.5)
    with connected(served) as connection:
        connection.sendall(sent)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"error_type":"timeout"' in answer


def test_headers_that_trickle_are_closed_all_the_same(serve: Serve) -> None:
    served = serve(header_timeout_seconds=0.5)
    with connected(served) as connection, contextlib.suppress(OSError):
        connection.sendall(b"GET / HTTP/1.1\r\n")
        end = time.monotonic() + 10
        while time.monotonic() < end:
            connection.sendall(b"a: b\r\n")
            time.sleep(0.1)
    assert time.monotonic() < end
    assert closed(served, "slow_headers") == 1


def test_the_second_request_has_a_limit_too(serve: Serve) -> None:
    served = serve(header_timeout_seconds=0.5)
    with connected(served) as connection:
        connection.sendall(REQUEST)
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(b"GET /lang")
        assert b" 408 " in read_all(connection)


def test_a_body_that_nobody_waits_for_does_not_keep_a_connection(serve: Serve) -> None:
    served = serve(header_timeout_seconds=0.5)
    head = b"GET /languages HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    with connected(served) as connection, contextlib.suppress(OSError):
        connection.sendall(head)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            connection.sendall(b"a")
            time.sleep(0.1)
    assert time.monotonic() < end


def test_a_slow_body_is_not_a_slow_header(serve: Serve) -> None:
    """Bodies have the time of the request."""
    served = serve(header_timeout_seconds=0.5)
    body = b'{"q":"Hello.","source":"en","target":"de"}'
    head = f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with connected(served) as connection:
        connection.sendall(head.encode() + b"Connection: close\r\n\r\n")
        time.sleep(2)
        connection.sendall(body)
        assert b"HELLO." in read_all(connection)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000,
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 20_000,
    ],
)
def test_large_headers_are_refused(server: Running, sent: bytes) -> None:
    with connected(server) as connection, contextlib.suppress(OSError):
        connection.sendall(sent)
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"the headers exceed the limit of 65536 bytes" in answer


def test_headers_of_some_size_pass(server: Running) -> None:
    assert server.client.get("/languages", headers={"A": "a" * 60_000}).status_code == 200


def test_what_is_no_http_is_answered_in_our_shape(server: Running) -> None:
    with connected(server) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"error_type":"validation"' in answer


def test_many_requests_in_one_go_are_refused(server: Running) -> None:
    with connected(server) as connection, contextlib.suppress(OSError):
        connection.sendall(REQUEST * 1000)
        assert read_all(connection).count(b"200 OK") <= MAX_PIPELINED + 1
    assert server.client.get("/languages").status_code == 200


def test_too_many_connections_are_refused_and_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(max_connections=3)
    served.client.get("/languages")  # its connection is the first
    with caplog.at_level(logging.WARNING, "service.http.connections"), connected(served), connected(served):
        for _ in range(5):
            with connected(served) as refused:
                assert read_all(refused).startswith(b"HTTP/1.1 503 ")
        assert closed(served, "too_many") == 5
        assert "polyhead_open_connections 3.0" in served.client.get("/metrics").text
    (line,) = [record.message for record in caplog.records if "connections are taken" in record.message]
    assert line.startswith("all 3 connections are taken")
    wait_until(lambda: httpx.get(f"{served.url}/languages").status_code == 200)


class FakeTransport:
    """A socket whose other end reads when the test says so."""

    def __init__(self) -> None:
        self.unread = 0
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.is_aborted = True


def test_a_client_that_does_not_read_is_dropped() -> None:
    reasons: list[str] = []
    guard = ConnectionGuard(ConnectionLimits(10, 10), SimpleNamespace(on_connection_closed=reasons.append))
    loop = asyncio.new_event_loop()
    connection = guard.protocol(config=uvicorn.Config(FastAPI()), server_state=ServerState(), app_state={}, _loop=loop)
    transport = FakeTransport()
    connection.transport = transport  # type: ignore[assignment]
    transport.unread = 100_000
    assert not connection.abort_if_unread(0)
    assert not connection.abort_if_unread(29)
    transport.unread = 50_000  # it reads
    assert not connection.abort_if_unread(31)
    transport.unread = 49_000  # hardly
    assert not connection.abort_if_unread(60)
    assert connection.abort_if_unread(62)
    assert (transport.is_aborted, reasons) == (True, ["unread"])
    loop.close()


@pytest.mark.parametrize(("limit", "allowed"), [(None, 4096), (65536, 4096), (1024, 896), (256, 128), (100, 50)])
def test_connections_leave_descriptors_for_the_rest(limit: int | None, allowed: int) -> None:
    assert allowed_connections(4096, lambda: limit) == allowed


def test_a_key_in_a_url_is_kept_out_of_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    from service.logs import configure_logging

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logging("info")
        logging.getLogger("a").warning(
            "GET /translate?q=a&api_key=secret-%s&b=c", "word", extra={"u": "?api_key=secret"}
        )
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = capsys.readouterr().err
    assert "secret" not in line
    assert "api_key=***&b=c" in line
