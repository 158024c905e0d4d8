"""Freed memory goes back to the system."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from service.operations.memory import MemoryTrimmer

_MIB = 2**20


def test_the_heap_is_trimmed_while_the_process_works_and_for_a_while_after() -> None:
    busy = iter([0, 0, 0, 1, 1, *[1] * 10_000])  # the clock that is read at the start, and before and after each trim
    trimmed: list[int] = []

    def processor_seconds() -> float:
        return next(busy)

    async def run() -> None:
        trimmer = MemoryTrimmer(processor_seconds, lambda: trimmed.append(1), 0.001)
        trimmer.start()
        await asyncio.sleep(0.3)
        await trimmer.close()

    asyncio.run(run())
    assert len(trimmed) == 3


FRAGMENTED = """
import os
from pathlib import Path
from service.operations.memory import MemoryTrimmer

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

trimmer = MemoryTrimmer.of_process()
assert trimmer is not None
texts = [bytes(20_000) for _ in range(10_000)]
kept = texts[::50]
full = resident()
del texts
freed = resident()
trimmer._trim()
print(full - freed, full - resident())
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "confstr"), reason="glibc alone can do it")
def test_memory_that_is_free_in_pieces_goes_back() -> None:
    if "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""):
        pytest.skip("another C library")
    result = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True)
    by_itself, trimmed = map(int, result.stdout.split())
    assert trimmed > 150 * _MIB > by_itself
