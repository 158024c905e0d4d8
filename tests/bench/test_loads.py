"""Clients, arrivals, and the batcher that stands before a peer."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bench.loads import (
    ENGINE,
    Answer,
    Ask,
    Load,
    LoadRound,
    Server,
    in_process,
    load_row,
    measure_loads,
    poisson_times,
    run_load,
)
from bench.side import Gathered, Output, Text
from tests.bench.fakes import Fake

TEXTS = [Text((number, 2), 2) for number in range(24)]


class Echo:
    """Answers every request with its own items, once it holds `patience` requests; notes how many it held at most."""

    def __init__(self, patience: int = 1) -> None:
        self.seen: list[Any] = []
        self.most = 0
        self._patience = patience
        self._held: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Ask[Any]]:
        yield self.ask

    async def ask(self, items: Sequence[Any]) -> list[Output]:
        self.seen += items
        waiting = asyncio.get_running_loop().create_future()
        self._held.append(waiting)
        self.most = max(self.most, len(self._held))
        if len(self._held) >= self._patience:
            for future in self._held:
                future.set_result(None)
            self._held = []
        await waiting
        return [Output(item.token_ids if isinstance(item, Text) else (1,)) for item in items]


def test_clients_of_a_closed_loop_have_one_request_each() -> None:
    # With four clients or more it would hold four at times; with fewer than three it would never answer.
    echo = Echo(patience=3)
    found = run_load(echo.connect, TEXTS, Load(3))
    assert echo.seen == TEXTS
    assert echo.most == 3
    assert len(found.answers) == len(TEXTS)
    assert min(answer.seconds for answer in found.answers) > 0


def test_clients_go_on_with_whole_requests_until_the_time_is_up() -> None:
    echo = Echo()
    found = run_load(echo.connect, ["a", "b", "c", "d", "e"], Load(3, 2), 0.01)
    requests = [tuple(echo.seen[place : place + 2]) for place in range(0, len(echo.seen), 2)]
    assert set(requests) == {("a", "b"), ("c", "d")}
    assert len(found.answers) * 2 == len(echo.seen)
    assert found.texts_per_second == pytest.approx(len(echo.seen) / found.seconds)


def test_open_arrivals_do_not_wait_for_answers() -> None:
    echo = Echo(patience=len(TEXTS))
    found = run_load(echo.connect, TEXTS, Load(rate=1e6))
    assert echo.seen == TEXTS
    assert all(answer.seconds > 0 for answer in found.answers)


@pytest.mark.parametrize("load", [Load(3), Load(rate=1e6)], ids=["clients", "arrivals"])
def test_an_error_is_not_counted_as_an_answer(load: Load) -> None:
    class Broken(Echo):
        async def ask(self, items: Sequence[Any]) -> list[Output]:
            raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        run_load(Broken().connect, TEXTS, load)


def test_poisson_times_are_repeatable_rising_and_have_the_rate() -> None:
    times = poisson_times(rate=50.0, count=5000)
    assert times == poisson_times(rate=50.0, count=5000)
    assert all(earlier < later for earlier, later in itertools.pairwise(times))
    assert len(times) / times[-1] == pytest.approx(50.0, rel=0.05)


def test_a_rate_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="rate is 0"):
        poisson_times(0, 1)


def test_rounds_are_told_by_their_median_and_all_latencies() -> None:
    rounds = [
        LoadRound(Load(8), 1.0, tuple(Answer(0.0, speed / 1000, 1, None) for _ in range(speed)))
        for speed in (10, 30, 20)
    ]
    assert load_row(Server("polyhead", "int8", "2x1", Echo().connect), rounds) == {
        "load": "8 x 1",
        "side": "polyhead",
        "precision": "int8",
        "setting": "2x1",
        "requests": 60,
        "requests_per_second": 20.0,
        "texts_per_second": 20.0,
        "latency_p50_milliseconds": 20.0,
        "latency_p99_milliseconds": 30.0,
    }


def test_tokens_and_their_times_are_those_of_the_answers() -> None:
    answers = (Answer(1.0, 3.0, 1, [Output((5, 6, 7), (2.0, 2.5, 4.0))]), Answer(2.0, 1.0, 1, [Output((5,), (3.0,))]))
    row = load_row(Server("polyhead", "int8", "1x2", Echo().connect), [LoadRound(Load(rate=1.0), 4.0, answers)])
    assert row["tokens_per_second"] == 1.0
    assert (row["gap_p50_milliseconds"], row["gap_p99_milliseconds"]) == (500.0, 1500.0)
    assert row["first_token_p99_milliseconds"] == 1000.0


def test_a_server_is_held_against_the_engine_in_its_precision_and_all_against_a_peer() -> None:
    def pause(seconds: float) -> Callable[[Any], Awaitable[None]]:
        return lambda _: asyncio.sleep(seconds)

    def server(name: str, precision: str, seconds: float) -> Server[Any]:
        @asynccontextmanager
        async def connect() -> AsyncIterator[Ask[Any]]:
            yield pause(seconds)

        return Server(name, precision, "", connect)

    servers = [
        server(ENGINE, "int8", 0.01),
        server(ENGINE, "fp32", 0.05),
        server("polyhead", "int8", 0.02),
        server("peer", "fp32", 0.06),
    ]
    shown: list[Any] = []
    rows = measure_loads(servers, TEXTS[:2], [Load(1)], shown.append, rounds=2, against="peer")
    assert rows == shown
    assert [row["side"] for row in rows] == [ENGINE, ENGINE, "polyhead", "peer"]
    assert [row["kept"] is None for row in rows] == [True, True, False, True]
    assert rows[3]["ratios"] == {"peer fp32": 1.0}
    assert rows[0]["ratios"]["peer fp32"] > rows[2]["ratios"]["peer fp32"] > 1.0
    assert 0.2 < rows[2]["kept"] < 1.0


def test_an_engine_is_asked_for_texts_whose_items_are_known() -> None:
    side = Fake(range(9))
    known = {"a": Text((1,), 2), "b": Text((2,), 3)}
    found = run_load(in_process(side, known=known).connect, ["a", "b"], Load(1))
    assert [len(answer.answer[0].token_ids) for answer in found.answers] == [2, 3]


def test_no_request_joins_a_batch_that_runs() -> None:
    side, batches = Fake(range(20)), list[int]()
    started, gate = threading.Event(), threading.Event()

    def run(items: Sequence[Text]) -> list[Output]:
        batches.append(len(items))
        started.set()
        assert gate.wait(30)
        return side.run(items)

    async def ask_all() -> list[list[Output]]:
        first = asyncio.create_task(server.ask(TEXTS[:1]))
        assert await asyncio.to_thread(started.wait, 30)
        others = [asyncio.create_task(server.ask([text])) for text in TEXTS[1:5]]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(first, *others)

    server = Gathered("gathered", side, run, 1, max_batch_size=3)
    outputs = asyncio.run(ask_all())
    server.close()
    assert batches == [1, 3, 1]
    assert [len(output.token_ids) for (output,) in outputs] == [2] * 5


def test_an_error_reaches_everybody_who_waits() -> None:
    def run(items: Sequence[Text]) -> list[Output]:
        raise RuntimeError(f"no room for {len(items)}")

    server = Gathered("broken", Fake([1]), run, 1)
    with pytest.raises(RuntimeError, match="no room for 1"):
        asyncio.run(server.ask(TEXTS[:1]))
    server.close()
