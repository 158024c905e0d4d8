"""Freed memory goes back to the system, which the C library does not do by itself where it lies in pieces."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time
from collections.abc import Callable
from contextlib import suppress

_SECONDS_BETWEEN = 10.0
_BUSY_SHARE = 0.01
"""Of the time between two looks: a process that took more of a processor may have freed something."""
_ROUNDS_AFTER_WORK = 3
"""What a request has held may be freed later, such as spare blocks of the cache."""


class MemoryTrimmer:
    """Trims the heap every ten seconds, while the process works and for half a minute after.

    Only glibc can do it; elsewhere nothing happens.
    """

    def __init__(self, processor_seconds: Callable[[], float], trim: Callable[[], object], seconds: float) -> None:
        self._processor_seconds, self._trim, self._seconds = processor_seconds, trim, seconds
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of_process(cls) -> MemoryTrimmer | None:
        """That of this process; None where memory cannot be given back."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        return None if trim is None else cls(time.process_time, lambda: trim(0), _SECONDS_BETWEEN)

    def start(self) -> None:
        """Begin, on the event loop that runs."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        rounds = 0
        before = self._processor_seconds()
        while True:
            await asyncio.sleep(self._seconds)
            now = self._processor_seconds()
            rounds = _ROUNDS_AFTER_WORK if now - before > _BUSY_SHARE * self._seconds else rounds - 1
            if rounds > 0:
                await asyncio.to_thread(self._trim)  # ctypes releases the GIL
            before = self._processor_seconds()
