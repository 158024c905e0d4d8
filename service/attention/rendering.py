"""The thread in which answers are aggregated, written and drawn, so that the event loop goes on serving others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from service.errors import SlowdownError

T = TypeVar("T")

_INLINE_VALUES = 10_000  # below this, handing over to a thread costs more than the work
_RETRY_SECONDS = 1.0


class RenderPool:
    """One thread, because matplotlib is not made for several, and a line in front of it with room for `max_waiting`."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="attention")
        self._num_waiting = 0
        self._lock = threading.Lock()

    async def run(self, num_values: int, work: Callable[[], T]) -> T:
        """What `work` returns: at once where it is about few numbers, else in the thread.

        SlowdownError when the line is full. Cancelling takes work that has not begun out of the line.
        """
        if num_values <= _INLINE_VALUES:
            return work()
        return await self.draw(work)

    async def draw(self, work: Callable[[], T]) -> T:
        """The same for work that is long whatever it is about."""
        with self._lock:
            if self._num_waiting >= self._max_waiting:
                raise SlowdownError(
                    f"{self._num_waiting} answers are waiting to be drawn or written",
                    retry_after_seconds=_RETRY_SECONDS,
                )
            self._num_waiting += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    def _leave(self, future: Future[Any]) -> None:
        with self._lock:
            self._num_waiting -= 1

    def close(self) -> None:
        """Wait for the work that has begun, and drop the rest."""
        self._pool.shutdown(cancel_futures=True)
