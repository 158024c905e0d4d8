"""Clients of embedding servers, in this process: each asks again as soon as it is answered, until the time is up."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bench.models import BenchError
from bench.wire import read_answer, write_request

Ask = Callable[[Sequence[str]], Awaitable[None]]
"""Embed some texts and come back when the answer is there."""

Connect = Callable[[], AbstractAsyncContextManager[Ask]]
"""A new client, for as long as the context lasts."""


@dataclass(frozen=True)
class Load:
    """So many clients with so many texts in each request."""

    num_clients: int
    texts_per_request: int

    def __str__(self) -> str:
        return f"{self.num_clients} x {self.texts_per_request}"


LOADS = (Load(1, 1), Load(8, 1), Load(32, 1), Load(128, 1), Load(4, 32))


@dataclass(frozen=True)
class LoadRound:
    """What one side did under one load in one round: texts a second, and the seconds that each request took."""

    texts_per_second: float
    latencies: tuple[float, ...]


async def run_load(load: Load, connect: Connect, texts: Sequence[str], seconds: float) -> LoadRound:
    """Let the clients ask for `seconds`; requests that are under way then are waited for, and the time until they end.

    So a server has nothing left to do when the next one's turn comes.
    """
    chunks = _chunks(texts, load.texts_per_request)
    latencies: list[float] = []
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect()) for _ in range(load.num_clients)]
        start = time.perf_counter()

        async def work(ask: Ask) -> None:
            while (asked := time.perf_counter()) < start + seconds:
                await ask(next(chunks))
                latencies.append(time.perf_counter() - asked)

        await asyncio.gather(*map(work, clients))
        elapsed = time.perf_counter() - start
    return LoadRound(len(latencies) * load.texts_per_request / elapsed, tuple(latencies))


def _chunks(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in itertools.cycle(range(0, len(texts) - size + 1, size)):
        yield texts[start : start + size]


def http_client(url: str, path: str, body: Callable[[Sequence[str]], dict[str, Any]]) -> Connect:
    """What makes clients, each with a connection of its own, that POST `body(texts)` to `path`."""
    host, port = urlsplit(url).hostname, urlsplit(url).port

    @asynccontextmanager
    async def connect() -> AsyncIterator[Ask]:
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
