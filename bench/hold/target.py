"""The server that is attacked, as an attack sees it: a host, a port, and the statuses of its answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bench.wire import read_answer

NO_ANSWER = 0
"""In place of a status: the server closed the connection without one."""
_ANSWER_SECONDS = 120.0
_BUFFER_BYTES = 1 << 20


@dataclass
class Target:
    """Sends requests and counts what came back. `examples` keeps the first request of each status that is a fault."""

    host: str
    port: int
    statuses: Counter[int] = field(default_factory=Counter)
    examples: dict[int, bytes] = field(default_factory=dict)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of the caller's own."""
        return await asyncio.open_connection(self.host, self.port, limit=_BUFFER_BYTES)

    async def ask(self, request: bytes) -> bytes:
        """One request on a connection of its own; the body of its answer."""
        return (await self._converse([request]))[0]

    async def ask_all(self, requests: Sequence[bytes], num_clients: int = 8) -> None:
        """All requests, by so many clients with a connection each."""
        shares = [requests[number::num_clients] for number in range(num_clients)]
        await asyncio.gather(*(self._converse(share) for share in shares if share))

    def count(self, status: int, request: bytes) -> None:
        """One request was answered with `status`, or not at all."""
        self.statuses[status] += 1
        if is_fault(status):
            self.examples.setdefault(status, request[:2000])

    async def _converse(self, requests: Sequence[bytes]) -> list[bytes]:
        """The requests one after another; a connection that the server closes is replaced."""
        bodies = []
        connection = _Connection(self)
        for request in requests:
            status, body = await connection.ask(request)
            self.count(status, request)
            bodies.append(body)
        await connection.close()
        return bodies


class _Connection:
    """One client, whose connection is made anew when it was closed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        is_new = self._streams is None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._exchange(request)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            await self.close()
        # An idle connection may have been closed just as the request was sent.
        return (NO_ANSWER, b"") if is_new else await self.ask(request)

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        self._streams = self._streams or await self._target.connect()
        reader, writer = self._streams
        sending = asyncio.ensure_future(_send(writer, request))
        try:
            answer = await read_answer(reader, has_body=not request.startswith(b"HEAD "))
        finally:
            is_sent = sending.done()
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending
        if not is_sent:  # the answer came before all of the request was taken: what follows would be out of step
            await self.close()
        return answer

    async def close(self) -> None:
        if self._streams is not None:
            await close(self._streams[1])
        self._streams = None


async def _send(writer: asyncio.StreamWriter, request: bytes) -> None:
    with suppress(OSError):  # the reader hears of it too
        writer.write(request)
        await writer.drain()


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection, whatever state it is in."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def is_fault(status: int) -> bool:
    """Whether an answer is a fault of the server's own; 503, 504 and 507 have causes outside of it."""
    return status == 424 or (status >= 500 and status not in {503, 504, 507})
