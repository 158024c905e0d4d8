from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from service.errors import SlowdownError
from service.workers import WorkerPool, run_together


def with_pool(scene: Callable[[WorkerPool], Awaitable[None]]) -> None:
    async def play() -> None:
        pool = WorkerPool(1, name="drawing", inline_size=1_000, max_waiting=2)
        try:
            await scene(pool)
        finally:
            await asyncio.to_thread(pool.close)

    asyncio.run(play())


def test_little_is_done_at_once_and_much_in_the_thread() -> None:
    async def scene(pool: WorkerPool) -> None:
        here = threading.get_ident()
        assert await pool.run(10, threading.get_ident) == here
        there = await pool.run(10**6, threading.get_ident)
        assert there != here
        assert await pool.submit(threading.get_ident) == there

    with_pool(scene)


def test_what_goes_wrong_in_the_thread_is_raised() -> None:
    def fail() -> None:
        raise KeyError("fault")

    async def scene(pool: WorkerPool) -> None:
        with pytest.raises(KeyError, match="fault"):
            await pool.submit(fail)

    with_pool(scene)


def test_a_full_line_is_refused_and_empties() -> None:
    async def scene(pool: WorkerPool) -> None:
        go_on = threading.Event()
        tasks = [asyncio.create_task(pool.submit(go_on.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(SlowdownError, match="2 requests are waiting for drawing"):
            await pool.submit(lambda: None)
        go_on.set()
        assert await asyncio.gather(*tasks) == [True, True]
        assert await pool.submit(lambda: 1) == 1

    with_pool(scene)


def test_cancelling_takes_waiting_work_out_of_the_line() -> None:
    async def scene(pool: WorkerPool) -> None:
        go_on, ran = threading.Event(), list[str]()
        first = asyncio.create_task(pool.submit(go_on.wait))
        second = asyncio.create_task(pool.submit(lambda: ran.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        third = asyncio.create_task(pool.submit(lambda: ran.append("third")))  # there is room again
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, third)
        assert ran == ["third"]

    with_pool(scene)


def test_the_first_failure_cancels_the_rest_and_comes_alone() -> None:
    cancelled = list[str]()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("wait")
            raise

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("fault")

    with pytest.raises(KeyError, match="fault"):
        asyncio.run(run_together([wait(), fail()]))
    assert cancelled == ["wait"]


def test_results_come_in_order() -> None:
    async def give(number: int) -> int:
        await asyncio.sleep(0.01 * (3 - number))
        return number

    assert asyncio.run(run_together([give(number) for number in range(3)])) == [0, 1, 2]
    assert asyncio.run(run_together([give(7)])) == [7]
    assert asyncio.run(run_together(list[Coroutine[Any, Any, int]]())) == []
