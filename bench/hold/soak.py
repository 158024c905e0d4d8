"""Hours of mixed traffic: ordinary requests and a few hostile ones, and what the server holds meanwhile."""

from __future__ import annotations

import asyncio
import random
import statistics
import time

from bench.hold.fuzz import fuzz
from bench.hold.samples import ordinary_requests
from bench.hold.target import Target
from bench.hold.watch import read_memory

_NUM_CLIENTS = 4
_HOSTILE_SHARE = 0.2
_PAUSE_SECONDS = 0.05
_SAMPLE_SECONDS = 10.0
_MIB = 2**20


def soak(target: Target, pid: int, seconds: float, seed: int) -> list[tuple[float, int]]:
    """Ask for so long; (seconds from the start, resident bytes) every ten seconds."""
    target.statuses.clear()
    target.examples.clear()
    samples = asyncio.run(_soak(target, pid, seconds, seed))
    _print(target, samples, seconds)
    return samples


async def _soak(target: Target, pid: int, seconds: float, seed: int) -> list[tuple[float, int]]:
    start = time.perf_counter()
    samples: list[tuple[float, int]] = []
    generator, hostile, ordinary = random.Random(seed), fuzz(seed), ordinary_requests()

    async def ask() -> None:
        while time.perf_counter() < start + seconds:
            is_hostile = generator.random() < _HOSTILE_SHARE
            await target.ask(next(hostile) if is_hostile else generator.choice(ordinary))
            await asyncio.sleep(generator.random() * 2 * _PAUSE_SECONDS)

    async def sample() -> None:
        while (elapsed := time.perf_counter() - start) < seconds:
            samples.append((elapsed, read_memory(pid).now))
            await asyncio.sleep(_SAMPLE_SECONDS)

    await asyncio.gather(sample(), *(ask() for _ in range(_NUM_CLIENTS)))
    return samples


def _print(target: Target, samples: list[tuple[float, int]], seconds: float) -> None:
    print(f"\nsoak of {seconds:.0f} s: {dict(sorted(target.statuses.items()))}\n")
    print("| eighth | MiB, median | lowest | highest |")
    print("|---|---|---|---|")
    for eighth in range(8):
        held = [size / _MIB for elapsed, size in samples if eighth <= 8 * elapsed / seconds < eighth + 1]
        if held:
            print(f"| {eighth + 1} | {statistics.median(held):.0f} | {min(held):.0f} | {max(held):.0f} |", flush=True)
