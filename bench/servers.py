"""Servers in processes of their own on this machine, and clients of them over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from bench.loads import Ask, Connect, Server
from bench.models import ROOT
from bench.side import NAME, BenchError, Threads
from bench.wire import read_answer, write_request

_START_SECONDS = 180.0
_STOP_SECONDS = 30.0


def free_port() -> int:
    """A port that nothing on this machine listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(command: Sequence[str], url: str, folder: Path) -> Iterator[None]:
    """`command`, run in `folder`, from the first healthy answer of `url`/health until the context ends."""
    server = subprocess.Popen(command, cwd=folder)
    try:
        await_health(server, url, command)
        yield
    finally:
        server.terminate()
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def await_health(server: subprocess.Popen[bytes], url: str, command: Sequence[str]) -> None:
    """Wait for the first healthy answer of `url`/health; BenchError where `server` ends or takes too long."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if server.poll() is not None:
            raise BenchError(f"`{' '.join(command)}` ended with exit code {server.returncode}, see above")
        try:
            if httpx.get(f"{url}/health", timeout=5).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)  # not listening yet
    raise BenchError(f"`{' '.join(command)}` was not healthy within {_START_SECONDS:.0f} s")


@contextmanager
def serving(bundle: Path, precision: str, threads: Threads, device: str = "cpu") -> Iterator[str]:
    """Our service on a free port of this machine, from its first healthy answer; yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "service", "--bundles", str(bundle), "--port", str(port), "--device", device]
    command += ["--precision", precision, "--loops", str(threads.workers), "--threads", str(threads.each)]
    command += ["--log-level", "error"]
    with running(command, url, ROOT):
        yield url


@contextmanager
def our_server(
    bundle: Path,
    precision: str,
    threads: Threads,
    path: str,
    body: Callable[[Sequence[str]], dict[str, Any]],
    device: str = "cpu",
) -> Iterator[Server[str]]:
    """The service as `python -m service` runs it, which clients ask at `path`."""
    with serving(bundle, precision, threads, device) as url:
        yield Server(NAME, precision, str(threads), http_client(url, path, body))


def http_client(url: str, path: str, body: Callable[[Sequence[str]], dict[str, Any]]) -> Connect[str]:
    """What makes clients, each with a connection of its own, that POST `body(texts)` to `path`.

    They write HTTP/1.1 straight onto a socket, because a client library takes as much of the two cores as a server
    does.
    """
    host, port = urlsplit(url).hostname, urlsplit(url).port

    @asynccontextmanager
    async def connect() -> AsyncIterator[Ask[str]]:
        reader, writer = await asyncio.open_connection(host, port)

        async def ask(texts: Sequence[str]) -> None:
            content = json.dumps(body(texts)).encode()
            writer.write(write_request("POST", path, content, "application/json"))
            status, answer = await read_answer(reader)
            if status != 200:
                raise BenchError(f"POST {path} answered {status}: {answer[:300]!r}")

        try:
            yield ask
        finally:
            writer.close()
            await writer.wait_closed()

    return connect


def embed_body(texts: Sequence[str]) -> dict[str, Any]:
    """A request for embeddings."""
    return {"inputs": list(texts)}


def translate_body(texts: Sequence[str], max_new_tokens: int) -> dict[str, Any]:
    """A request for translations from English into German."""
    options = {"source": "en", "target": "de", "beam_size": 1, "max_new_tokens": max_new_tokens}
    return {"q": list(texts) if len(texts) > 1 else texts[0], **options}
