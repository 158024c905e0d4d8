"""Embedding servers under the same loads in turn, and how much of our engine's speed is left behind HTTP."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.arrivals import percentile
from bench.embed_load import LOADS, Load, LoadRound, run_load
from bench.embed_models import PreparedEncoder
from bench.embed_servers import Server, engine_client, hand_written_server, infinity_server, our_server
from bench.embedding import EngineEncoder
from bench.models import PRECISIONS

_ENGINE = "polyhead engine"
_WARM_SECONDS = 1.0


@dataclass(frozen=True)
class LoadResult:
    """One side under one load: the median of its rounds, and the latencies of all. Times in seconds."""

    side: str
    precision: str
    load: Load
    rounds: tuple[LoadRound, ...]
    kept: float | None = None
    """The share of the engine's own speed under the same load, for our server."""

    @property
    def texts_per_second(self) -> float:
        return statistics.median(part.texts_per_second for part in self.rounds)

    def latency(self, share: float) -> float:
        """The percentile `share` of all requests."""
        return percentile([seconds for part in self.rounds for seconds in part.latencies], share)

    def to_dict(self) -> dict[str, Any]:
        return {
            "side": self.side,
            "precision": self.precision,
            "clients": self.load.num_clients,
            "texts_per_request": self.load.texts_per_request,
            "texts_per_second": round(self.texts_per_second, 1),
            "p50_milliseconds": round(1000 * self.latency(50), 1),
            "p99_milliseconds": round(1000 * self.latency(99), 1),
            "kept": None if self.kept is None else round(self.kept, 3),
        }


def measure_loads(
    prepared: PreparedEncoder,
    texts: Sequence[str],
    rounds: int,
    seconds: float,
    num_threads: int,
    infinity: Path | None,
    left_out: list[str],
) -> list[LoadResult]:
    """Every server under every load; those that are not asked do nothing meanwhile."""
    with ExitStack() as stack:
        sides = []
        for precision in PRECISIONS:
            encoder = EngineEncoder(prepared, precision, num_threads)
            stack.callback(encoder.close)
            sides.append(Server(_ENGINE, precision, engine_client(encoder)))
            sides.append(stack.enter_context(our_server(prepared, precision, num_threads)))
        sides.append(stack.enter_context(hand_written_server(prepared, num_threads)))
        if infinity is None:
            left_out.append("infinity: no --infinity ENVIRONMENT was given")
        else:
            sides.append(stack.enter_context(infinity_server(prepared, infinity)))
        for side in sides:
            asyncio.run(run_load(Load(8, 1), side.connect, texts, _WARM_SECONDS))
        results = []
        for load in LOADS:
            seen: list[list[LoadRound]] = [[] for _ in sides]
            for number in range(rounds):
                order = range(len(sides)) if number % 2 == 0 else range(len(sides) - 1, -1, -1)
                for index in order:
                    seen[index].append(asyncio.run(run_load(load, sides[index].connect, texts, seconds)))
            results += _results(load, sides, seen)
    return results


def _results(load: Load, sides: Sequence[Server], seen: Sequence[Sequence[LoadRound]]) -> list[LoadResult]:
    results: list[LoadResult] = []
    for side, parts in zip(sides, seen, strict=True):
        kept = None
        if side.has_engine:
            engine = seen[[(other.name, other.precision) for other in sides].index((_ENGINE, side.precision))]
            # Round by round, so that what slows one round slows both.
            kept = statistics.median(
                part.texts_per_second / whole.texts_per_second for part, whole in zip(parts, engine, strict=True)
            )
        results.append(LoadResult(side.name, side.precision, load, tuple(parts), kept))
    return results
