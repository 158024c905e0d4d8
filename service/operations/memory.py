"""Memory that was freed goes back to the system, which the C library does not do by itself where it lies in pieces."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_SECONDS_BETWEEN = 10.0
_GROWTH_BYTES = 16 * 2**20
"""Less is not worth a search through everything that is free."""


class MemoryTrimmer:
    """Trims the heap every ten seconds, where the process has grown since it was last trimmed.

    Only glibc can do it; elsewhere nothing happens.
    """

    def __init__(self, resident: Callable[[], int], trim: Callable[[], object], seconds: float) -> None:
        self._resident, self._trim, self._seconds = resident, trim, seconds
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of_process(cls) -> MemoryTrimmer | None:
        """That of this process; None where memory cannot be given back."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        return None if trim is None else cls(_resident_bytes, lambda: trim(0), _SECONDS_BETWEEN)

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
        smallest = self._resident()
        while True:
            await asyncio.sleep(self._seconds)
            if self._resident() < smallest + _GROWTH_BYTES:
                continue
            await asyncio.to_thread(self._trim)  # ctypes releases the GIL
            smallest = self._resident()


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
