"""Sides under load: clients that ask again as soon as they are answered, and Poisson arrivals."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from bench.rounds import Spread, milliseconds, orders, ratio, ratios, stream_times
from bench.side import NAME, Output, Side

ItemT = TypeVar("ItemT")

Ask = Callable[[Sequence[ItemT]], Awaitable[Any]]
"""Send one request and come back with its answer."""

Connect = Callable[[], AbstractAsyncContextManager[Ask[ItemT]]]
"""A new client, for as long as the context lasts."""

ENGINE = f"{NAME} engine"
"""Our engine in this process, where a server is held against it."""

_TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True)
class Server(Generic[ItemT]):
    """One side that is asked by clients, over HTTP or in this process."""

    name: str
    precision: str
    setting: str
    connect: Connect[ItemT]


def in_process(side: Side[ItemT, Any], name: str = "", known: Mapping[Any, ItemT] | None = None) -> Server[Any]:
    """A side without HTTP, under another `name` if given; `known` has the items of the texts that it is asked."""

    async def ask(items: Sequence[Any]) -> Any:
        return await side.ask(items if known is None else [known[item] for item in items])

    @asynccontextmanager
    async def connect() -> AsyncIterator[Ask[Any]]:
        yield ask

    return Server(name or side.name, side.precision, side.setting, connect)


@dataclass(frozen=True)
class Load:
    """So many clients, each with one request at a time, or with `rate` requests that arrive at so many a second."""

    num_clients: int = 0
    texts_per_request: int = 1
    rate: float = 0.0

    def __str__(self) -> str:
        if self.rate:
            return f"{self.rate:.2f}/s"
        return f"{self.num_clients} x {self.texts_per_request}"


class Answer(NamedTuple):
    """When a request of so many texts came, the seconds until its answer was there, and the answer."""

    asked: float
    seconds: float
    num_texts: int
    answer: Any


@dataclass(frozen=True)
class LoadRound:
    """What one side did under one load in one round, which took `seconds`."""

    load: Load
    seconds: float
    answers: tuple[Answer, ...]

    @property
    def texts_per_second(self) -> float:
        return sum(answer.num_texts for answer in self.answers) / self.seconds


def run_load(connect: Connect[ItemT], items: Sequence[ItemT], load: Load, seconds: float | None = None) -> LoadRound:
    """Every item once, or with `seconds` items from the first on again and again until the time is up.

    Requests that are under way then are waited for, so that a side has nothing left to do when the next one's turn
    comes.
    """
    return asyncio.run(_poisson(connect, items, load) if load.rate else _closed_loop(connect, items, load, seconds))


async def _closed_loop(connect: Connect[ItemT], items: Sequence[ItemT], load: Load, seconds: float | None) -> LoadRound:
    size = load.texts_per_request
    starts: Iterator[int] = iter(range(0, len(items), size))
    if seconds is not None:
        starts = itertools.cycle(range(0, len(items) - size + 1, size))  # whole requests only
    answers: list[Answer] = []
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect()) for _ in range(load.num_clients)]
        start = time.perf_counter()
        end = start + (float("inf") if seconds is None else seconds)

        async def work(ask: Ask[ItemT]) -> None:
            while (asked := time.perf_counter()) < end and (place := next(starts, None)) is not None:
                answers.append(await _answered(ask, items[place : place + size], asked))

        await asyncio.gather(*map(work, clients))
        return LoadRound(load, time.perf_counter() - start, tuple(answers))


async def _poisson(connect: Connect[ItemT], items: Sequence[ItemT], load: Load) -> LoadRound:
    async with connect() as ask:
        start, calls = time.perf_counter(), []
        for item, offset in zip(items, poisson_times(load.rate, len(items)), strict=True):
            await asyncio.sleep(start + offset - time.perf_counter())
            # From when it was due: a generator of load that runs late must not hide waiting.
            calls.append(asyncio.create_task(_answered(ask, [item], start + offset)))
        answers = await asyncio.gather(*calls)
        return LoadRound(load, time.perf_counter() - start, tuple(answers))


async def _answered(ask: Ask[ItemT], items: Sequence[ItemT], asked: float) -> Answer:
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        answer = await ask(items)
    return Answer(asked, time.perf_counter() - asked, len(items), answer)


def poisson_times(rate: float, count: int, seed: int = 0) -> list[float]:
    """When `count` independent requests arrive at `rate` a second on average, in seconds from the start."""
    if rate <= 0:
        raise ValueError(f"rate is {rate}, it must be positive")
    generator = random.Random(seed)
    return list(itertools.accumulate(generator.expovariate(rate) for _ in range(count)))


def measure_loads(
    servers: Sequence[Server[ItemT]],
    items: Sequence[ItemT],
    loads: Iterable[Load],
    add: Callable[[dict[str, Any]], None],
    rounds: int = 1,
    seconds: float | None = None,
    against: str = "",
) -> list[dict[str, Any]]:
    """A row for each server under each load; those that are not asked do nothing meanwhile.

    Rows have the ratios to the servers named `against`, ours also the share that it keeps of the engine's speed.
    """
    rows = []
    for load in loads:
        found: list[list[LoadRound]] = [[] for _ in servers]
        for server in servers:  # caches and arenas grow on first use
            warm = Load(load.num_clients or 32, load.texts_per_request)
            run_load(server.connect, items[: warm.num_clients * warm.texts_per_request], warm)
        for index in orders(len(servers), rounds):
            found[index].append(run_load(servers[index].connect, items, load, seconds))
        spreads = [seconds_each(part) for part in found]
        for server, part, spread in zip(servers, found, spreads, strict=True):
            others = list(zip(servers, spreads, strict=True))
            row = load_row(server, part) | {
                "ratios": ratios(spread, ((other, its) for other, its in others if other.name == against)),
                "kept": next(
                    (
                        round(ratio(spread, its), 3)
                        for other, its in others
                        if server.name == NAME and (other.name, other.precision) == (ENGINE, server.precision)
                    ),
                    None,
                ),
            }
            rows.append(row)
            add(row)
    return rows


def seconds_each(rounds: Sequence[LoadRound]) -> Spread:
    """Seconds of each round by the texts that were answered in it."""
    return Spread(tuple(1 / part.texts_per_second for part in rounds))


def load_row(server: Server[ItemT], rounds: Sequence[LoadRound]) -> dict[str, Any]:
    """The median speed of the rounds, and the latencies of all, from arrival to answer."""
    answers = [answer for part in rounds for answer in part.answers]
    row: dict[str, Any] = {
        "load": str(rounds[0].load),
        "side": server.name,
        "precision": server.precision,
        "setting": server.setting,
        "requests": len(answers),
        "requests_per_second": round(statistics.median(len(part.answers) / part.seconds for part in rounds), 2),
        "texts_per_second": round(1 / seconds_each(rounds).median, 2),
        **milliseconds("latency", [answer.seconds for answer in answers]),
    }
    outputs = [(answer.asked, answer.answer) for answer in answers if _is_outputs(answer.answer)]
    if outputs:
        num_tokens = sum(len(output.token_ids) for _, group in outputs for output in group)
        row["tokens_per_second"] = round(num_tokens / sum(part.seconds for part in rounds), 2)
        row |= stream_times(outputs)
    return row


def _is_outputs(answer: Any) -> bool:
    return isinstance(answer, list) and all(isinstance(output, Output) for output in answer)
