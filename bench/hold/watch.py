"""What a bystander sees: how long GET /languages takes, and how much memory the server holds."""

from __future__ import annotations

import multiprocessing
import socket
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from bench.wire import write_request

_SECONDS_BETWEEN = 0.005
_GIVE_UP_SECONDS = 180.0
_KIB = 1024


@dataclass(frozen=True)
class Waits:
    """How long the bystander's requests took, in seconds; `num_lost` had no answer but a closed connection."""

    longest: float
    num_requests: int
    num_lost: int


class Bystander:
    """Asks again and again, in a process of its own: the attacks keep this one's interpreter busy."""

    def __init__(self, host: str, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_ask_forever, args=(host, port, other), daemon=True)
        self._process.start()
        self._pipe.recv()

    def waits(self) -> Waits:
        """Those since this was last asked; a request that is under way is waited for."""
        self._pipe.send(None)
        waits: Waits = self._pipe.recv()
        return waits

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _ask_forever(host: str, port: int, pipe: Connection) -> None:
    request = write_request("GET", "/languages")
    pipe.send(None)
    longest, num_requests, num_lost = 0.0, 0, 0
    client: socket.socket | None = None
    while True:
        start = time.perf_counter()
        try:
            if client is None:
                client = socket.create_connection((host, port), timeout=_GIVE_UP_SECONDS)
            client.sendall(request)
            if not client.recv(65_536):
                raise ConnectionError("closed without an answer")
        except OSError:
            num_lost += 1
            client = None
        longest = max(longest, time.perf_counter() - start)
        num_requests += 1
        if pipe.poll(_SECONDS_BETWEEN):
            pipe.recv()
            pipe.send(Waits(longest, num_requests, num_lost))
            longest, num_requests, num_lost = 0.0, 0, 0


@dataclass(frozen=True)
class Memory:
    """Resident bytes: of the server's process now and at its highest, and of the processes that it has started."""

    now: int
    highest: int
    children: int


def read_memory(pid: int) -> Memory:
    """Of the process `pid`, from Linux' /proc."""
    status = _status(pid)
    folder = Path(f"/proc/{pid}/task/{pid}/children")
    children = sum(_status(int(child)).get("VmRSS", 0) for child in folder.read_text(encoding="ascii").split())
    return Memory(status.get("VmRSS", 0), status.get("VmHWM", 0), children)


def forget_highest(pid: int) -> None:
    """Count the highest from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def _status(pid: int) -> dict[str, int]:
    """Bytes by name; nothing for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(number) * _KIB for name, number, _ in pairs}
