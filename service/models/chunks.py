"""Feeds the many parts of one HTTP request to an engine a chunk at a time.

A long text must neither fill the queue, which all requests share, nor be refused because it does not fit the queue at
once. So at most two chunks of a request are in the engine at a time. If the queue has no room for the first one, the
request is refused. Otherwise it is accepted, and its other chunks wait for room until its deadline.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from service.engine.core.errors import OverloadedError
from service.models.base import RequestEngine
from service.workers import run_together


class SizedRequest(Protocol):
    """What an engine is asked for, and how much of its waiting line it takes."""

    @property
    def num_tokens(self) -> int: ...


RequestT = TypeVar("RequestT", bound=SizedRequest)
ResultT = TypeVar("ResultT")

_CHUNKS_IN_FLIGHT = 2
_MAX_CHUNK_REQUESTS = 64
_LONGEST_PAUSE_SECONDS = 1.0


async def run_in_chunks(
    engine: RequestEngine[RequestT, ResultT],
    requests: Sequence[RequestT],
    *,
    max_waiting_requests: int,
    max_waiting_tokens: int,
    accepted: bool = False,
) -> list[ResultT]:
    """Results in the order of `requests`. Cancelling cancels what runs.

    Raises what the engine raises; OverloadedError only for the first chunk, and not once the request was `accepted`.
    """
    chunks = list(_chunks_of(requests, max_waiting_requests, max_waiting_tokens))
    if len(chunks) == 1:  # the usual case, without the cost of tasks
        return await _run_chunk(engine, chunks[0], patient=accepted)
    results: dict[int, list[ResultT]] = {}
    numbers = iter(range(len(chunks)))

    async def work() -> None:
        for number in numbers:
            results[number] = await _run_chunk(engine, chunks[number], patient=accepted or number > 0)

    await run_together([work() for _ in range(_CHUNKS_IN_FLIGHT)])
    return list(itertools.chain.from_iterable(results[number] for number in range(len(chunks))))


class OrderedResults(Generic[RequestT, ResultT]):
    """Results in the order of `requests`, each as soon as it and those before it are there: an asynchronous iterator.

    `open` first, and `aclose` at the end, which cancels what runs. Chunks and errors are as in `run_in_chunks`, but
    each request of a chunk is answered by itself.
    """

    def __init__(
        self,
        engine: RequestEngine[RequestT, ResultT],
        requests: Sequence[RequestT],
        *,
        max_waiting_requests: int,
        max_waiting_tokens: int,
    ) -> None:
        self._engine = engine
        self._chunks = _chunks_of(requests, max_waiting_requests, max_waiting_tokens)
        self._running: deque[deque[asyncio.Task[list[ResultT]]]] = deque()

    async def open(self) -> None:
        """Queue the first chunk, all of it or nothing; OverloadedError where the engine is too full for it."""
        self._begin_next(patient=False)
        await asyncio.sleep(0)  # each task has asked for its place in the queue
        try:
            for task in itertools.chain.from_iterable(self._running):
                if task.done():
                    task.result()
        except BaseException:
            await self.aclose()
            raise

    def _begin_next(self, *, patient: bool) -> None:
        if chunk := next(self._chunks, None):
            runs = [_run_chunk(self._engine, [request], patient=patient) for request in chunk]
            self._running.append(deque(map(asyncio.ensure_future, runs)))

    def __aiter__(self) -> OrderedResults[RequestT, ResultT]:
        return self

    async def __anext__(self) -> ResultT:
        while len(self._running) < _CHUNKS_IN_FLIGHT:
            num_running = len(self._running)
            self._begin_next(patient=True)
            if len(self._running) == num_running:
                break
        if not self._running:
            raise StopAsyncIteration
        first = self._running[0]
        (result,) = await first[0]
        first.popleft()
        if not first:
            self._running.popleft()
        return result

    async def aclose(self) -> None:
        """Cancel what runs. May be called again."""
        tasks = list(itertools.chain.from_iterable(self._running))
        self._running.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _chunks_of(
    requests: Sequence[RequestT], max_waiting_requests: int, max_waiting_tokens: int
) -> Iterator[list[RequestT]]:
    """Chunks of at most a quarter of the queue: a request never fills more than half of it."""
    return split_into_chunks(
        requests,
        max_requests=max(1, min(_MAX_CHUNK_REQUESTS, max_waiting_requests // 4)),
        max_tokens=max(1, max_waiting_tokens // 4),
    )


async def _run_chunk(
    engine: RequestEngine[RequestT, ResultT], chunk: Sequence[RequestT], *, patient: bool
) -> list[ResultT]:
    while True:
        try:
            return await engine.run(chunk)
        except OverloadedError as error:
            if not patient:
                raise
            # Jitter, so that waiting requests do not retry at the same time.
            await asyncio.sleep(min(error.retry_after_seconds, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0))


def split_into_chunks(requests: Sequence[RequestT], *, max_requests: int, max_tokens: int) -> Iterator[list[RequestT]]:
    """`requests` in order, in lists within both limits; a request that alone exceeds `max_tokens` is alone."""
    chunk: list[RequestT] = []
    num_tokens = 0
    for request in requests:
        if chunk and (len(chunk) == max_requests or num_tokens + request.num_tokens > max_tokens):
            yield chunk
            chunk, num_tokens = [], 0
        chunk.append(request)
        num_tokens += request.num_tokens
    if chunk:
        yield chunk
