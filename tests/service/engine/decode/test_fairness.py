"""Short requests beside long ones, in the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from service.engine.core.flow import begin_flow
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.speed import Speed
from service.engine.decode.types import DecodingRequest, Result
from tests.service.engine.decode.toy import BOS, ToyBackend, request_of

STEP_SECONDS = 0.002


@asynccontextmanager
async def engine_of(backend: ToyBackend, num_loops: int = 1, **limits: int) -> AsyncIterator[DecodingEngine]:
    engine = DecodingEngine(backend, DecodingLimits(**limits), num_loops, capacities=(16, 32))
    engine.start()
    try:
        yield engine
    finally:
        await asyncio.to_thread(engine.close)


async def ask(engine: DecodingEngine, client: str, requests: Sequence[DecodingRequest]) -> tuple[list[Result], float]:
    """One request of `client`: what it gives, and how long it took."""
    begin_flow(client)
    started = time.monotonic()
    return await engine.run(requests), time.monotonic() - started


def sentences(count: int, num_tokens: int = 20) -> list[DecodingRequest]:
    """So many, each with as many tokens of output as of the source."""
    return [request_of((BOS,), (5,) * num_tokens, max_new_tokens=num_tokens, ignore_eos=True)] * count


def slow(backend: ToyBackend) -> ToyBackend:
    """Each step takes a time that grows with its rows, as on a processor."""
    backend.on_step = lambda number: time.sleep(STEP_SECONDS / 8 * backend.rows_of_steps[number - 1])
    return backend


@pytest.mark.parametrize("is_same_client", [True, False])
def test_a_short_request_is_answered_long_before_a_long_one_that_fills_all_rows(is_same_client: bool) -> None:
    async def main() -> None:
        backend = slow(ToyBackend(max_source_tokens=20))
        async with engine_of(backend, max_rows=16, express_tokens=10) as engine:
            long = asyncio.create_task(ask(engine, "a", sentences(200)))
            await asyncio.to_thread(backend.wait_for_step, 5)
            before = len(backend.rows_of_steps)
            shorts = [await ask(engine, "a" if is_same_client else "b", sentences(1, 5)) for _ in range(4)]
            assert not long.done()
            # A step of its own for each token, and of the long one no more rows than those take time for.
            assert sum(backend.rows_of_steps[before:]) < 200
            assert all(seconds < 1 for _, seconds in shorts)
            results, _ = await long
            assert len({result.best.token_ids for result in results}) == 1

    asyncio.run(main())


def test_a_long_request_goes_on_beside_short_ones_without_end() -> None:
    async def main() -> None:
        backend = slow(ToyBackend(max_source_tokens=20))
        async with engine_of(backend, max_rows=16, express_tokens=10) as engine:
            is_over = False

            async def keep_asking(client: str) -> None:
                while not is_over:
                    await ask(engine, client, sentences(1, 5))

            shorts = [asyncio.create_task(keep_asking(f"{number}")) for number in range(20)]
            results, _ = await asyncio.wait_for(ask(engine, "long", sentences(30)), 30)
            assert len(results) == 30
            is_over = True
            await asyncio.gather(*shorts)

    asyncio.run(main())


def test_nothing_that_would_have_finished_would_be_refused() -> None:
    """A request is refused where the estimate is more than twice its time: it must never be more than what it takes."""

    async def main() -> None:
        backend = slow(ToyBackend(max_source_tokens=20))
        async with engine_of(backend, num_loops=2, max_rows=8) as engine:
            assert engine.estimate_seconds(sentences(1000)) == 0  # nothing was measured
            for num_tokens in (6, 20):
                await ask(engine, "a", sentences(64, num_tokens))
            for count, num_tokens in ((1, 3), (5, 20), (40, 6), (120, 20), (200, 3)):
                requests = sentences(count, num_tokens)
                estimate = engine.estimate_seconds(requests)
                _, seconds = await ask(engine, "a", requests)
                assert 0 < estimate <= seconds

    asyncio.run(main())


def test_the_estimate_follows_the_speed() -> None:
    speed = Speed(max_rows=8, capacities=(16, 32))
    requests = [request_of((BOS,), (5,) * 12, beam_size=2, max_new_tokens=60)] * 10
    speed.note(3, 16, 100.0)  # less than half of the rows: it says nothing of a full loop
    speed.note(8, 32, 8.0)  # another length
    assert speed.estimate_seconds(requests) == 0
    speed.note(4, 16, 4.0)
    assert speed.estimate_seconds(requests) == 10 * 2 * 6 * 1.0
    speed.note(8, 16, 4.0)
    assert speed.estimate_seconds(requests) == 10 * 2 * 6 * 0.5
    speed.note(8, 16, 8.0)
    assert 60 < speed.estimate_seconds(requests) < 65
    short = [request_of((BOS,), (5,) * 12, max_new_tokens=2)]
    assert speed.estimate_seconds(short) < 1.1
