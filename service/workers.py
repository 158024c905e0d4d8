"""Work beside the event loop: in threads, or as several coroutines at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from service.errors import SlowdownError

T = TypeVar("T")

INLINE_CHARACTERS = 2_000
"""Work on a shorter text is done before a thread would have begun it (docs/decisions/0060)."""

_RETRY_SECONDS = 1.0


class WorkerPool:
    """Threads for work that would block the event loop.

    Work of at most `inline_size` is done inline, because a thread would take as long. With `max_waiting`, at most so
    many calls are running or queued. `name` names the threads, and in messages what there is too much of.
    """

    def __init__(self, num_workers: int, *, name: str, inline_size: int, max_waiting: int | None = None) -> None:
        self._name = name
        self._inline_size = inline_size
        self._max_waiting = max_waiting
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix=name)
        self._num_waiting = 0
        self._lock = threading.Lock()

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """What `work` returns: inline where `size` is small, else as `submit` does."""
        if size <= self._inline_size:
            return work()
        return await self.submit(work)

    async def submit(self, work: Callable[[], T]) -> T:
        """What `work` returns, run in a thread. Cancelling removes work that has not begun from the queue.

        SlowdownError when the queue is full.
        """
        with self._lock:
            if self._max_waiting is not None and self._num_waiting >= self._max_waiting:
                raise SlowdownError(
                    f"{self._num_waiting} requests are waiting for {self._name}", retry_after_seconds=_RETRY_SECONDS
                )
            self._num_waiting += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    def _leave(self, future: Future[Any]) -> None:
        with self._lock:
            self._num_waiting -= 1

    def close(self) -> None:
        """Wait for running work, and drop what is queued."""
        self._pool.shutdown(cancel_futures=True)


async def run_together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order. The first failure cancels the rest and is raised by itself, not in an ExceptionGroup."""
    if len(works) == 1:  # the usual case, without the cost of tasks
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
