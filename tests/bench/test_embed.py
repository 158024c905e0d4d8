"""The embedding benchmark's own parts: texts, vectors, clients and flags."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from bench.__main__ import main
from bench.embed_models import varied_texts
from bench.ours import unit
from bench.servers import http_client, translate_body
from bench.side import BenchError


def test_texts_are_always_the_same_and_of_all_lengths() -> None:
    texts = varied_texts(500)
    assert texts == varied_texts(500)
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) < 4
    assert max(lengths) > 60
    assert 12 < np.median(lengths) < 16


def test_rows_get_length_one() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 2.0]], np.float32)
    expected = np.array([[0.6, 0.8], [0.0, 1.0]], np.float32)
    assert np.abs(unit(rows) - expected).max() < 1e-6


def test_one_text_is_asked_for_as_one_and_several_as_a_list() -> None:
    assert translate_body(["a"], 9)["q"] == "a"
    assert translate_body(["a", "b"], 9)["q"] == ["a", "b"]


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
        (b"HTTP/1.1 200 OK\r\n\r\n", "without a content-length"),
    ],
)
def test_a_client_says_what_is_wrong_with_an_answer(answer: bytes, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        ask_once(answer)


@pytest.mark.parametrize("flag", ["--threads", "--rounds"])
@pytest.mark.parametrize("command", ["embed", "translate"])
def test_numbers_that_make_no_sense_are_refused(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, flag, "0"])
    assert stopped.value.code == 2
    assert f"{flag} is 0, it must be at least 1" in capsys.readouterr().err
