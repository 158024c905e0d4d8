"""A server in a process of its own, on this machine."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.models import BenchError

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
