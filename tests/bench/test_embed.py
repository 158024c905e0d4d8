"""The embedding benchmark's own parts: texts, the choice of settings, load, clients and charts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.__main__ import main
from bench.embed_http import LoadResult
from bench.embed_load import Ask, Load, LoadRound, http_client, run_load
from bench.embed_models import varied_texts
from bench.embed_plots import plot_embed
from bench.embed_texts import SideResult, best_choice
from bench.embedding import Vectors, unit
from bench.models import BenchError
from bench.rounds import Spread


def test_texts_are_always_the_same_and_of_all_lengths() -> None:
    texts = varied_texts(500)
    assert texts == varied_texts(500)
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) < 4
    assert max(lengths) > 60
    assert 12 < np.median(lengths) < 16


class Clock:
    """Time that only passes when somebody spends it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Side:
    name, precision = "fake", "fp32"

    def __init__(self, clock: Clock, seconds: float, opened: list[Side]) -> None:
        self.clock, self.seconds, self.is_open = clock, seconds, True
        self.setting = f"{seconds} s"
        opened.append(self)

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.clock.now += self.seconds
        return np.ones((len(texts), 2), np.float32)

    def close(self) -> None:
        self.is_open = False


def test_the_fastest_setting_is_kept_and_the_others_closed() -> None:
    clock, opened = Clock(), list[Side]()
    best = best_choice([partial(Side, clock, seconds, opened) for seconds in (3, 1, 2)], ["a"], clock)
    assert best.setting == "1 s"
    assert [side.is_open for side in opened] == [False, True, False]


def test_rows_get_length_one() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 2.0]], np.float32)
    expected = np.array([[0.6, 0.8], [0.0, 1.0]], np.float32)
    assert np.abs(unit(rows) - expected).max() < 1e-6


def test_every_client_asks_with_texts_of_the_load() -> None:
    seen: list[tuple[int, list[str]]] = []
    started = iter(range(10))

    @asynccontextmanager
    async def connect() -> AsyncIterator[Ask]:
        number = next(started)

        async def ask(texts: Sequence[str]) -> None:
            seen.append((number, list(texts)))
            await asyncio.sleep(0)

        yield ask

    found = asyncio.run(run_load(Load(3, 2), connect, ["a", "b", "c", "d", "e"], 0.01))
    assert {number for number, _ in seen} == {0, 1, 2}
    assert {tuple(texts) for _, texts in seen} == {("a", "b"), ("c", "d")}
    assert len(found.latencies) == len(seen)
    assert found.texts_per_second > 0


async def with_server(answer: bytes, use: Callable[[str], Awaitable[Any]]) -> tuple[list[bytes], Any]:
    """What a server that always says `answer` is asked, and what `use` returns given its address."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        asked.append(head + await reader.readexactly(length))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return asked, await use(f"http://127.0.0.1:{port}")


def ask_once(answer: bytes) -> list[bytes]:
    async def use(url: str) -> None:
        async with http_client(url, "/embed", lambda texts: {"inputs": list(texts)})() as ask:
            await ask(["grüße"])

    return asyncio.run(with_server(answer, use))[0]


def test_a_client_posts_json_and_reads_the_whole_answer() -> None:
    (request,) = ask_once(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n[[1.0]]")
    head, body = request.split(b"\r\n\r\n")
    assert head.startswith(b"POST /embed HTTP/1.1\r\n")
    assert json.loads(body) == {"inputs": ["grüße"]}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nbusy", "answered 429: b'busy'"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "without a content-length"),
    ],
)
def test_a_client_says_what_is_wrong_with_an_answer(answer: bytes, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        ask_once(answer)


def test_rounds_are_told_by_their_median_and_all_latencies() -> None:
    rounds = tuple(LoadRound(speed, (speed / 1000,)) for speed in (10.0, 30.0, 20.0))
    result = LoadResult("polyhead", "int8", Load(8, 1), rounds, kept=0.9)
    assert result.to_dict() == {
        "side": "polyhead",
        "precision": "int8",
        "clients": 8,
        "texts_per_request": 1,
        "texts_per_second": 20.0,
        "p50_milliseconds": 20.0,
        "p99_milliseconds": 30.0,
        "kept": 0.9,
    }


def test_what_was_measured_is_drawn_and_nothing_else(tmp_path: Path) -> None:
    sides = [
        SideResult(name, "int8", "2x1", 100, 2000, Spread((1.0, 2.0, 3.0)), 0.99, 0.999).to_dict()
        for name in ("polyhead", "ctranslate2")
    ]
    loads = [
        LoadResult(name, "int8", load, (LoadRound(10.0, (0.1,)),)).to_dict()
        for name in ("polyhead", "infinity")
        for load in (Load(1, 1), Load(8, 1))
    ]
    assert plot_embed({"texts": [], "http": []}, tmp_path) == []
    written = plot_embed({"texts": sides, "http": loads}, tmp_path)
    assert [path.name for path in written] == ["benchmark-embed.png", "benchmark-embed-http.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


@pytest.mark.parametrize("flag", ["--threads", "--rounds"])
@pytest.mark.parametrize("command", ["embed", "translate"])
def test_numbers_that_make_no_sense_are_refused(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, flag, "0"])
    assert stopped.value.code == 2
    assert f"{flag} is 0, it must be at least 1" in capsys.readouterr().err
