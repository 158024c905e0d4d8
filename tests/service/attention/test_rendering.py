from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from service.attention.rendering import RenderPool
from service.errors import SlowdownError


def with_pool(scene: Callable[[RenderPool], Awaitable[None]]) -> None:
    async def play() -> None:
        pool = RenderPool(max_waiting=2)
        try:
            await scene(pool)
        finally:
            await asyncio.to_thread(pool.close)

    asyncio.run(play())


def test_little_is_done_at_once_and_much_in_the_thread() -> None:
    async def scene(pool: RenderPool) -> None:
        here = threading.get_ident()
        assert await pool.run(10, threading.get_ident) == here
        there = await pool.run(10**6, threading.get_ident)
        assert there != here
        assert await pool.draw(threading.get_ident) == there

    with_pool(scene)


def test_what_goes_wrong_in_the_thread_is_raised() -> None:
    def fail() -> None:
        raise KeyError("fault")

    async def scene(pool: RenderPool) -> None:
        with pytest.raises(KeyError, match="fault"):
            await pool.draw(fail)

    with_pool(scene)


def test_a_full_line_is_refused_and_empties() -> None:
    async def scene(pool: RenderPool) -> None:
        go_on = threading.Event()
        tasks = [asyncio.create_task(pool.draw(go_on.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(SlowdownError, match="2 answers are waiting"):
            await pool.draw(lambda: None)
        go_on.set()
        assert await asyncio.gather(*tasks) == [True, True]
        assert await pool.draw(lambda: 1) == 1

    with_pool(scene)


def test_cancelling_takes_waiting_work_out_of_the_line() -> None:
    async def scene(pool: RenderPool) -> None:
        go_on, ran = threading.Event(), list[str]()
        first = asyncio.create_task(pool.draw(go_on.wait))
        second = asyncio.create_task(pool.draw(lambda: ran.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        third = asyncio.create_task(pool.draw(lambda: ran.append("third")))  # there is room again
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, third)
        assert ran == ["third"]

    with_pool(scene)
