from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from service.engine.core.errors import OverloadedError
from service.engine.core.types import EngineStats
from service.engine.decode.types import DecodingRequest, Hypothesis, Result
from service.models.chunks import OrderedResults, run_in_chunks, split_into_chunks


class CountingEngine:
    """Answers each request with its own ids, after a turn of the loop; refuses the calls named in `refused`."""

    def __init__(self, refused: Sequence[int] = ()) -> None:
        self.calls: list[int] = []
        self.refused = set(refused)
        self.num_running = 0
        self.most_running = 0
        self.num_cancelled = 0

    async def run(self, requests: Sequence[DecodingRequest]) -> list[Result]:
        self.calls.append(len(requests))
        if len(self.calls) - 1 in self.refused:
            raise OverloadedError("full", retry_after_seconds=0.01)
        self.num_running += len(requests)
        self.most_running = max(self.most_running, self.num_running)
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= len(requests)
        return [Result((Hypothesis(request.source_ids or (), 0.0, True),), 0.0, 0.0, 1) for request in requests]

    def stats(self) -> EngineStats:
        raise NotImplementedError

    def start(self) -> None: ...
    def drain(self, timeout_seconds: float) -> bool:
        return True

    def close(self) -> None: ...


def requests(count: int, num_tokens: int = 1) -> list[DecodingRequest]:
    return [DecodingRequest(source_ids=(number,) * num_tokens, prompt_ids=(1,)) for number in range(count)]


async def run(engine: CountingEngine, count: int, *, accepted: bool = False) -> list[int]:
    results = await run_in_chunks(
        engine, requests(count), max_waiting_requests=40, max_waiting_tokens=4_000, accepted=accepted
    )
    return [result.best.token_ids[0] for result in results]


@pytest.mark.parametrize("count", [0, 1, 10, 11, 95])
def test_results_are_in_order(count: int) -> None:
    assert asyncio.run(run(CountingEngine(), count)) == list(range(count))


def test_two_chunks_run_at_a_time() -> None:
    engine = CountingEngine()
    asyncio.run(run(engine, 95))
    assert max(engine.calls) == 10
    assert engine.most_running == 20


def test_a_full_engine_refuses_the_first_chunk() -> None:
    engine = CountingEngine(refused=[0])
    with pytest.raises(OverloadedError):
        asyncio.run(run(engine, 95))
    assert engine.num_running == 0
    assert len(engine.calls) <= 2


def test_later_chunks_wait_for_room() -> None:
    engine = CountingEngine(refused=[1, 2, 3])
    assert asyncio.run(run(engine, 95)) == list(range(95))


def test_an_accepted_request_waits_from_its_first_chunk() -> None:
    engine = CountingEngine(refused=[0])
    assert asyncio.run(run(engine, 5, accepted=True)) == list(range(5))


def test_cancelling_stops_all_chunks() -> None:
    async def main() -> CountingEngine:
        engine = CountingEngine()
        task = asyncio.ensure_future(run(engine, 95))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return engine

    engine = asyncio.run(main())
    assert (engine.num_running, engine.num_cancelled) == (0, 2)


def test_chunks_keep_within_both_limits() -> None:
    mixed = [DecodingRequest(source_ids=(0,) * num_tokens, prompt_ids=(1,)) for num_tokens in (5, 5, 1, 20, 1, 1, 1, 1)]
    chunks = list(split_into_chunks(mixed, max_requests=3, max_tokens=10))
    assert [[request.num_tokens for request in chunk] for chunk in chunks] == [[5, 5], [1], [20], [1, 1, 1], [1]]


async def ordered(engine: CountingEngine, count: int) -> list[int]:
    results = OrderedResults(engine, requests(count), max_waiting_requests=40, max_waiting_tokens=4_000)
    await results.open()
    return [result.best.token_ids[0] async for result in results]


@pytest.mark.parametrize("count", [0, 1, 10, 11, 95])
def test_results_come_one_by_one_in_order(count: int) -> None:
    engine = CountingEngine()
    assert asyncio.run(ordered(engine, count)) == list(range(count))
    assert engine.calls == [1] * count
    assert engine.most_running <= 20


def test_a_full_engine_refuses_the_first_chunk_of_a_stream_before_it_begins() -> None:
    async def main() -> CountingEngine:
        engine = CountingEngine(refused=[9])
        results = OrderedResults(engine, requests(95), max_waiting_requests=40, max_waiting_tokens=4_000)
        with pytest.raises(OverloadedError):
            await results.open()
        assert engine.num_running == 0
        return engine

    engine = asyncio.run(main())
    assert engine.num_cancelled == 9  # those of the chunk that had been admitted


def test_later_chunks_of_a_stream_wait_for_room() -> None:
    assert asyncio.run(ordered(CountingEngine(refused=[10, 11, 40]), 95)) == list(range(95))


def test_closing_a_stream_cancels_all_that_runs() -> None:
    async def main() -> CountingEngine:
        engine = CountingEngine()
        results = OrderedResults(engine, requests(95), max_waiting_requests=40, max_waiting_tokens=4_000)
        await results.open()
        assert (await anext(results)).best.token_ids == (0,)
        await results.aclose()
        return engine

    engine = asyncio.run(main())
    assert engine.num_running == 0
    assert len(engine.calls) == 20
