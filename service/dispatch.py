"""Feeds the sentences of one HTTP request to an engine a chunk at a time.

A whole book must not fill the waiting line for everybody, nor be refused because it is longer than the line. So only
two chunks of a request are in the engine at a time. The first chunk decides: if the engine is too full for it, the
client hears so. Once it is in, the request is accepted, and its other chunks wait for room until its deadline.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator, Sequence

from service.engine.errors import OverloadedError
from service.engine.types import GenerationResult, InferenceRequest
from service.models import TranslationEngine

_CHUNKS_IN_FLIGHT = 2
_MAX_CHUNK_REQUESTS = 64
_LONGEST_PAUSE_SECONDS = 1.0


async def run_in_chunks(
    engine: TranslationEngine,
    requests: Sequence[InferenceRequest],
    *,
    max_waiting_requests: int,
    max_waiting_tokens: int,
    accepted: bool = False,
) -> list[GenerationResult]:
    """Results in the order of `requests`. Cancelling cancels what runs.

    Raises what the engine raises; OverloadedError only for the first chunk, and not once the request was `accepted`.
    """
    chunks = list(
        split_into_chunks(
            requests,
            max_requests=max(1, min(_MAX_CHUNK_REQUESTS, max_waiting_requests // 4)),
            max_tokens=max(1, max_waiting_tokens // 4),
        )
    )
    if len(chunks) == 1:  # the usual case, without the cost of tasks
        return await _run_chunk(engine, chunks[0], patient=accepted)
    results: dict[int, list[GenerationResult]] = {}
    numbers = iter(range(len(chunks)))

    async def work() -> None:
        for number in numbers:
            results[number] = await _run_chunk(engine, chunks[number], patient=accepted or number > 0)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CHUNKS_IN_FLIGHT):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return list(itertools.chain.from_iterable(results[number] for number in range(len(chunks))))


async def _run_chunk(
    engine: TranslationEngine, chunk: Sequence[InferenceRequest], *, patient: bool
) -> list[GenerationResult]:
    while True:
        try:
            return await engine.run(chunk)
        except OverloadedError as error:
            if not patient:
                raise
            # Spread the retries, or all that wait would come back in the same instant.
            await asyncio.sleep(min(error.retry_after_seconds, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0))


def split_into_chunks(
    requests: Sequence[InferenceRequest], *, max_requests: int, max_tokens: int
) -> Iterator[list[InferenceRequest]]:
    """`requests` in order, in lists within both limits; a request that alone exceeds `max_tokens` is alone."""
    chunk: list[InferenceRequest] = []
    num_tokens = 0
    for request in requests:
        if chunk and (len(chunk) == max_requests or num_tokens + request.num_tokens > max_tokens):
            yield chunk
            chunk, num_tokens = [], 0
        chunk.append(request)
        num_tokens += request.num_tokens
    if chunk:
        yield chunk
