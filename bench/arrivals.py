"""Requests of mixed lengths that arrive one by one, as at a server: throughput and latency.

Two kinds of load: clients who each ask again as soon as they are answered (closed loop), and requests that arrive
by chance at a given rate, whether or not earlier ones are answered (Poisson).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from bench.decoding import Decoder, Settings, Source

_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class LoadResult:
    """What one side did under one load. Times in seconds from arrival to answer."""

    side: str
    threads: str
    load: str
    requests_per_second: float
    tokens_per_second: float
    latencies: tuple[float, ...]

    @property
    def p50(self) -> float:
        return percentile(self.latencies, 50)

    @property
    def p99(self) -> float:
        return percentile(self.latencies, 99)

    def to_dict(self) -> dict[str, Any]:
        return {
            "side": self.side,
            "threads": self.threads,
            "load": self.load,
            "requests": len(self.latencies),
            "requests_per_second": round(self.requests_per_second, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "p50_milliseconds": round(1000 * self.p50, 1),
            "p99_milliseconds": round(1000 * self.p99, 1),
        }


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` percent of `values` do not exceed (nearest rank)."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    if not 0 < share <= 100:
        raise ValueError(f"share is {share}, allowed: 0 < share <= 100")
    ranked = sorted(values)
    return ranked[max(0, -int(-len(ranked) * share // 100) - 1)]


def poisson_times(rate: float, count: int, seed: int = 0) -> list[float]:
    """When `count` independent requests arrive at `rate` a second on average, in seconds from the start."""
    if rate <= 0:
        raise ValueError(f"rate is {rate}, it must be positive")
    generator = random.Random(seed)
    times, now = [], 0.0
    for _ in range(count):
        now += generator.expovariate(rate)
        times.append(now)
    return times


def closed_loop(decoder: Decoder, sources: Sequence[Source], settings: Settings, num_clients: int) -> LoadResult:
    """`num_clients` clients work off `sources`, each with one request at a time."""
    latencies, answers = [0.0] * len(sources), [None] * len(sources)
    places = iter(range(len(sources)))
    lock = threading.Lock()

    def client() -> None:
        while True:
            with lock:
                place = next(places, None)
            if place is None:
                return
            start = time.perf_counter()
            answers[place] = decoder.submit(sources[place], settings).result(_TIMEOUT_SECONDS)
            latencies[place] = time.perf_counter() - start

    threads = [threading.Thread(target=client) for _ in range(num_clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _result(decoder, f"{num_clients} clients", time.perf_counter() - start, latencies, answers)


def poisson(decoder: Decoder, sources: Sequence[Source], settings: Settings, rate: float) -> LoadResult:
    """Every source arrives at its own time, `rate` a second on average; all sides see the same times."""
    latencies = [0.0] * len(sources)
    futures: list[Future[Any]] = []
    answered = threading.Semaphore(0)

    def watch(place: int, due: float, future: Future[Any]) -> None:
        def note(_: Future[Any]) -> None:
            latencies[place] = time.perf_counter() - due
            answered.release()

        future.add_done_callback(note)

    start = time.perf_counter()
    for place, (source, offset) in enumerate(zip(sources, poisson_times(rate, len(sources)), strict=True)):
        time.sleep(max(0.0, start + offset - time.perf_counter()))
        future = decoder.submit(source, settings)
        # From when it was due: a generator that runs late must not hide waiting.
        watch(place, start + offset, future)
        futures.append(future)
    # A future wakes those who wait for its result before it calls back, so the callbacks are waited for.
    for _ in sources:
        if not answered.acquire(timeout=_TIMEOUT_SECONDS):
            raise TimeoutError(f"{decoder.name} left a request unanswered for {_TIMEOUT_SECONDS:.0f} s")
    seconds = time.perf_counter() - start
    answers = [future.result() for future in futures]
    return _result(decoder, f"{rate:.1f}/s", seconds, latencies, answers)


def _result(
    decoder: Decoder, load: str, seconds: float, latencies: Sequence[float], answers: Sequence[Any]
) -> LoadResult:
    num_tokens = sum(len(tokens) for tokens in decoder.tokens(answers))
    return LoadResult(
        decoder.name, str(decoder.threads), load, len(latencies) / seconds, num_tokens / seconds, tuple(latencies)
    )
