"""Sides in turn: A B, B A, A B, ... so that a machine that slows down does so for all; ratios and medians."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Protocol, TypeVar

from bench.side import NAME, BenchError, Output, Side

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

Clock = Callable[[], float]

_LEAST_EQUAL = 0.9
"""Of the tokens of a float32 side, those that must be the reference's: rounding may turn a tie, and what follows."""

_LEAST_DIFFERENT = 0.1
"""Share of an output's tokens that must differ from each other: a text that repeats itself proves nothing."""


@dataclass(frozen=True)
class Spread:
    """Several measurements of one thing, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def per_second(self, unit: str, count: float) -> dict[str, float]:
        """Speeds of a round that did `count` units, by name: the median, the slowest and the fastest round."""
        times = {"": self.median, "slowest_": max(self.seconds), "fastest_": min(self.seconds)}
        return {f"{name}{unit}_per_second": round(count / seconds, 2) for name, seconds in times.items()}


def ratio(ours: Spread, theirs: Spread) -> float:
    """How many times faster we are: the median of the ratios of each round, so that what slows one round slows both."""
    return statistics.median(their / our for our, their in zip(ours.seconds, theirs.seconds, strict=True))


class Named(Protocol):
    """What has the name of a side and its precision."""

    @property
    def name(self) -> str: ...

    @property
    def precision(self) -> str: ...


def ratios(ours: Spread, others: Iterable[tuple[Named, Spread]]) -> dict[str, float]:
    """How many times as fast as each other side, by its name and precision."""
    return {f"{side.name} {side.precision}": round(ratio(ours, spread), 3) for side, spread in others}


def orders(count: int, rounds: int) -> Iterator[int]:
    """Which of `count` sides comes next: all of them once a round, each round in the other direction."""
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}, it must be at least 1")
    for number in range(rounds):
        yield from range(count) if number % 2 == 0 else range(count - 1, -1, -1)


def time_in_turn(
    jobs: Mapping[str, Callable[[], object]], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, Spread]:
    """Run every job once a round, in alternating order; returns the times of each."""
    names = list(jobs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for index in orders(len(names), rounds):
        start = clock()
        jobs[names[index]]()
        seconds[names[index]].append(clock() - start)
    return {name: Spread(tuple(values)) for name, values in seconds.items()}


@dataclass(frozen=True)
class Timed(Generic[ItemT, AnswerT]):
    """One side on one case: the times of its rounds, and when each batch began and what it gave."""

    side: Side[ItemT, AnswerT]
    spread: Spread
    answers: Sequence[tuple[float, AnswerT]]


def run_in_turn(
    contestants: Sequence[Sequence[Side[ItemT, AnswerT]]],
    items: Sequence[ItemT],
    rounds: int,
    batch_size: int = 0,
    trial: Sequence[ItemT] = (),
    clock: Clock = time.perf_counter,
) -> list[Timed[ItemT, AnswerT]]:
    """`items` in batches of `batch_size`, or all at once, on each contestant in the setting that is fastest for them.

    A contestant is one side in all the settings that are to be tried; they are tried on `trial`, where it is given.
    Each runs once before it counts: caches grow on first use, into memory that no process has touched yet.
    """
    sides = [fastest(settings, trial or items, batch_size, clock=clock) for settings in contestants]
    runs = [_Run(side, items, batch_size, clock) for side in sides]
    for run in runs:
        run()
        run.answers.clear()
    spreads = time_in_turn({str(number): run for number, run in enumerate(runs)}, rounds, clock)
    return [Timed(side, spread, run.answers) for side, run, spread in zip(sides, runs, spreads.values(), strict=True)]


def compared(timed: Sequence[Timed[Any, Any]], unit: str, count: float, against: str = "") -> list[dict[str, Any]]:
    """A row for each side of one case that did `count` units a round, with the ratios to the sides named `against`.

    Without a name, ours has the ratios to all the others.
    """
    rows = []
    for one in timed:
        others = [
            other for other in timed if (other.side.name == against if against else other.side.name != one.side.name)
        ]
        row = {
            "side": one.side.name,
            "precision": one.side.precision,
            "setting": one.side.setting,
            **one.spread.per_second(unit, count),
        }
        if against or one.side.name == NAME:
            row["ratios"] = ratios(one.spread, ((other.side, other.spread) for other in others))
        rows.append(row)
    return rows


def fastest(
    settings: Iterable[Side[ItemT, AnswerT]],
    items: Sequence[ItemT],
    batch_size: int = 0,
    *,
    closes: bool = False,
    clock: Clock = time.perf_counter,
) -> Side[ItemT, AnswerT]:
    """The one of `settings`, all of one side, that is done with `items` first; with `closes` the others are closed."""
    found: list[tuple[float, Side[ItemT, AnswerT]]] = []
    only = isinstance(settings, Sequence) and len(settings) == 1
    for side in settings:
        run = _Run(side, items, batch_size, clock)
        seconds = 0.0
        if not only:
            run()  # the first run of a new shape allocates
            start = clock()
            run()
            seconds = clock() - start
        found.append((seconds, side))
        if closes and len(found) > 1:
            found.sort(key=lambda item: item[0])
            found.pop()[1].close()
    return min(found, key=lambda item: item[0])[1]


class _Run(Generic[ItemT, AnswerT]):
    """All batches of one case on one side, one after the other."""

    def __init__(self, side: Side[ItemT, AnswerT], items: Sequence[ItemT], batch_size: int, clock: Clock) -> None:
        size = batch_size or len(items)
        self._jobs = [side.prepare(items[start : start + size]) for start in range(0, len(items), size)]
        self._clock = clock
        self.answers: list[tuple[float, AnswerT]] = []

    def __call__(self) -> None:
        for job in self._jobs:
            self.answers.append((self._clock(), job()))


def milliseconds(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile of latencies."""
    return {f"{name}_p{share}_milliseconds": round(1000 * percentile(seconds, share), 2) for share in (50, 99)}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` percent of `values` do not exceed (nearest rank)."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    if not 0 < share <= 100:
        raise ValueError(f"share is {share}, allowed: 0 < share <= 100")
    ranked = sorted(values)
    return ranked[max(0, -int(-len(ranked) * share // 100) - 1)]


def stream_times(answers: Iterable[tuple[float, Sequence[Output]]]) -> dict[str, float]:
    """Milliseconds to the first token and between tokens of streams; a time says when each was asked for."""
    streams = [(asked, output.times) for asked, outputs in answers for output in outputs if output.times]
    gaps = [after - before for _, times in streams for before, after in itertools.pairwise(times)]
    found = milliseconds("first_token", [times[0] - asked for asked, times in streams]) if streams else {}
    return found | (milliseconds("gap", gaps) if gaps else {})


@dataclass(frozen=True)
class Agreement:
    """How much of the outputs is what the reference wrote."""

    equal_tokens: float
    equal_outputs: float
    different_tokens: float
    """Different tokens of an output over all of its tokens, on average."""

    def to_dict(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


def compare_tokens(found: Iterable[Sequence[int]], reference: Iterable[Sequence[int]]) -> Agreement:
    """Outputs of two sides, text by text and token by token."""
    pairs = [(list(ids), list(expected)) for ids, expected in zip(found, reference, strict=True)]
    num_tokens = sum(max(len(ids), len(expected)) for ids, expected in pairs)
    equal = sum(a == b for ids, expected in pairs for a, b in zip(ids, expected, strict=False))
    return Agreement(
        equal / num_tokens if num_tokens else 1.0,
        sum(ids == expected for ids, expected in pairs) / len(pairs),
        sum(len(set(ids)) / len(ids) if ids else 1.0 for ids, _ in pairs) / len(pairs),
    )


def check_agreement(side: Named, found: Agreement) -> None:
    """BenchError where a side computes something else than the reference, or texts that prove nothing."""
    if side.precision == "fp32" and found.equal_tokens < _LEAST_EQUAL:
        raise BenchError(
            f"only {found.equal_tokens:.1%} of the tokens of {side.name} in float32 are those of the reference, so "
            "they do not compute the same thing and their speeds cannot be compared"
        )
    if found.different_tokens < _LEAST_DIFFERENT:
        raise BenchError(
            f"only {found.different_tokens:.1%} of the tokens of {side.name} {side.precision} differ from each "
            "other: a model that repeats itself proves nothing, equal outputs least of all"
        )


def agreement_row(side: Named, found: Agreement) -> dict[str, Any]:
    """What the JSON file says of it."""
    return {"side": side.name, "precision": side.precision, **found.to_dict()}
