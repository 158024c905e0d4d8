"""Freed memory goes back to the system."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from service.operations.memory import MemoryTrimmer

_MIB = 2**20


def test_the_heap_is_trimmed_only_after_the_process_has_grown() -> None:
    sizes = iter([100, 110, 116, 90, 100, 107, 95])
    trimmed: list[int] = []
    now = 0

    def resident() -> int:
        nonlocal now
        now = next(sizes, 95)
        return now * _MIB

    async def run() -> None:
        trimmer = MemoryTrimmer(resident, lambda: trimmed.append(now), 0.001)
        trimmer.start()
        await asyncio.sleep(0.3)
        await trimmer.close()

    asyncio.run(run())
    assert trimmed == [116, 107]


FRAGMENTED = """
import resource
from service.operations.memory import MemoryTrimmer, _resident_bytes
trimmer = MemoryTrimmer.of_process()
assert trimmer is not None
texts = [bytes(20_000) for _ in range(10_000)]
kept = texts[::50]
full = _resident_bytes()
del texts
freed = _resident_bytes()
trimmer._trim()
print(full - freed, full - _resident_bytes())
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "confstr"), reason="glibc alone can do it")
def test_memory_that_is_free_in_pieces_goes_back() -> None:
    if "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""):
        pytest.skip("another C library")
    result = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True)
    by_itself, trimmed = map(int, result.stdout.split())
    assert trimmed > 150 * _MIB > by_itself
