"""The fairness benchmark, with a server that is fair or not."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from bench.fairness import CASES, Case, FairnessResult, Post, fairness_table, measure_fairness
from bench.side import BenchError


def case(short: str = "/short", heavy: str = "/heavy") -> Case:
    return Case("a case", lambda _: Post(short, b"{}"), [lambda _: Post(heavy, b"{}")] * 2)


class Server:
    """Answers at once, and heavy requests after 50 ms, during which an unfair one answers nobody."""

    def __init__(self, is_fair: bool) -> None:
        self._is_fair = is_fair
        self._turn = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                status = await self._answer(head)
                writer.write(b"HTTP/1.1 %d OK\r\nContent-Length: 2\r\n\r\n{}" % status)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, head: bytes) -> int:
        if b"/broken" in head:
            return 500
        if b"/heavy" in head and self._is_fair:
            await asyncio.sleep(0.05)
        else:
            async with self._turn:
                await asyncio.sleep(0.05 if b"/heavy" in head else 0.001)
        return 200


async def measure(*cases: Case, is_fair: bool = True) -> list[FairnessResult]:
    server = await asyncio.start_server(Server(is_fair).serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        return await measure_fairness(f"http://{host}:{port}", cases, rounds=2, num_requests=6)


def test_a_heavy_client_that_others_wait_for_is_seen() -> None:
    (fair,) = asyncio.run(measure(case()))
    (unfair,) = asyncio.run(measure(case(), is_fair=False))
    assert len(fair.alone) == len(fair.beside) == 12
    assert set(fair.heavy_answers) == {200}
    assert unfair.p50_ratio > 2 * fair.p50_ratio
    assert not unfair.is_fair
    assert "NOT FAIR" in fairness_table([unfair])
    assert json.loads(json.dumps(unfair.to_dict()))["p50_ratio"] == round(unfair.p50_ratio, 2)


def test_a_short_request_without_an_answer_is_a_failure() -> None:
    with pytest.raises(BenchError, match="a short request was answered with 500"):
        asyncio.run(measure(case(short="/broken")))


def test_what_becomes_of_the_heavy_ones_is_counted() -> None:
    (result,) = asyncio.run(measure(case(heavy="/broken")))
    assert set(result.heavy_answers) == {500}


def test_requests_are_what_the_cases_say() -> None:
    chance = random.Random(1)
    texts = json.loads(CASES[0].heavy[0](chance).content)["q"]
    assert len(texts) == 256
    assert 96_000 < sum(map(len, texts)) <= 97_000
    assert json.loads(CASES[1].heavy[0](chance).content)["q"] == "a" * 60_000
    assert len(CASES[2].heavy) == 2
    assert 90_000 <= len(CASES[2].heavy[0](chance).content) < 91_000
    assert len(json.loads(CASES[3].heavy[0](chance).content)["inputs"]) == 32
    for each in CASES:
        assert each.short(chance) != each.short(chance)
