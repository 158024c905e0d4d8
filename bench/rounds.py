"""Timing in turn: A B, B A, A B, ... so that a machine that slows down or speeds up does so for both sides."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Several measurements of one thing, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def fastest(self) -> float:
        return min(self.seconds)

    @property
    def slowest(self) -> float:
        return max(self.seconds)


def time_in_turn(
    jobs: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Spread]:
    """Run every job once a round, in alternating order; returns the times of each."""
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}, it must be at least 1")
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds):
        order = list(jobs) if number % 2 == 0 else list(jobs)[::-1]
        for name in order:
            start = clock()
            jobs[name]()
            seconds[name].append(clock() - start)
    return {name: Spread(tuple(values)) for name, values in seconds.items()}


def ratio(ours: Spread, theirs: Spread) -> float:
    """How many times faster we are: the median of the ratios of each round, so that what slows one round slows both."""
    return statistics.median(their / our for our, their in zip(ours.seconds, theirs.seconds, strict=True))
