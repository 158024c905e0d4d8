"""The attacks: each takes the server as it is and does its worst."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bench.hold.samples import FORM, MULTIPART, hostile_files, ordinary_requests, post_json, upload
from bench.hold.target import NO_ANSWER, Target, close
from bench.wire import read_answer, write_request

_SLOW_SECONDS = 15.0
"""Longer than the server waits for headers by default."""


@dataclass(frozen=True)
class Attack:
    """One way to harm the others. `run` returns when it is over."""

    name: str
    run: Callable[[Target], Awaitable[None]]


def all_attacks() -> list[Attack]:
    """Every attack, those on files first."""
    attacks = [_of_requests(name, [upload(*file) for file in files]) for name, files in hostile_files().items()]
    attacks += [_of_requests(name, requests) for name, requests in _bodies().items()]
    attacks += [_of_requests(name, requests) for name, requests in (_texts() | _computations()).items()]
    attacks += [
        Attack("134 connections that send nothing", lambda target: _hold_open(target, 134, b"")),
        Attack(
            "200 connections with half a header", lambda target: _hold_open(target, 200, b"GET / HTTP/1.1\r\nX-A: ")
        ),
        Attack("200 bodies that come slowly", lambda target: _hold_open(target, 200, _SLOW_BODY)),
        Attack("2,000 connections", _many_connections),
        Attack("50 clients that never read", _never_read),
        Attack("clients that leave early", _leave_early),
        Attack("a body in 100,000 chunks", _chunked_body),
        Attack("1,000 requests at once on a connection", _pipeline),
    ]
    return attacks


def _of_requests(name: str, requests: Sequence[bytes]) -> Attack:
    return Attack(name, lambda target: target.ask_all(requests))


def _bodies() -> dict[str, list[bytes]]:
    """Bodies whose size or shape costs more than their bytes."""
    million = b'{"inputs":[' + b"1," * 999_999 + b"1]}"
    nested = b'{"inputs":' + b"[" * 900_000 + b"]" * 900_000 + b"}"
    keys = json.dumps({str(number): 1 for number in range(160_000)}).encode()
    small = ",".join(f'"{number}":1' for number in range(170_000)).encode()
    biases = {str(number): "x" for number in range(160_000)}
    fields = "&".join(f"a{number}=b" for number in range(200_000)).encode()
    parts = b"".join(b'------hold\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n' for _ in range(25_000))
    return {
        "a million numbers": [post_json(path, million) for path in ("/attention", "/embed", "/v1/completions")],
        "a million empty lists": [post_json("/embed", b'{"inputs":[' + b"[]," * 600_000 + b"[]]}")] * 2,
        "200,000 keys in an object": [
            post_json("/embed", b'{"inputs":{' + small + b"}}"),
            post_json("/translate", keys),
        ],
        "160,000 biases": [post_json("/v1/completions", {"prompt": "a", "logit_bias": biases})],
        "layers of two megabytes": [post_json("/attention", {"inputs": "a", "layers": "x," * 900_000})],
        "900,000 levels of lists": [post_json(path, nested) for path in ("/embed", "/translate", "/generate")],
        "numbers of a million digits": [post_json("/embed", b'{"inputs":[' + b"9" * 1_000_000 + b"]}")],
        "two megabytes of escapes": [post_json("/embed", b'{"inputs":"' + b"\\u00e4" * 300_000 + b'"}')] * 4,
        "two megabytes of per cent signs": [
            write_request("POST", "/translate", b"q=" + b"%" * 2_000_000, FORM),
            write_request("POST", "/translate", b"q=" + b"%41" * 600_000, FORM),
            write_request("POST", "/translate", b"&" * 2_000_000, FORM),
        ],
        "200,000 fields of a form": [write_request("POST", "/translate", fields, FORM)],
        "25,000 parts of a form": [write_request("POST", "/translate", parts + b"------hold--\r\n", MULTIPART)],
        "a part with a header of two megabytes": [
            write_request("POST", "/translate", b"------hold\r\nX-A: " + b"a" * 2_000_000, MULTIPART)
        ],
        "headers of 100 kB": [write_request("GET", "/languages", headers=[("X-A", "a" * 100_000)])] * 4,
        "a query of 60,000 signs": [
            write_request("GET", f"/languages?{'&' * 60_000}"),
            write_request("POST", f"/translate?{'a=b&' * 15_000}"),
            write_request("POST", f"/translate?q={'%' * 60_000}"),
        ],
    }


def _texts() -> dict[str, list[bytes]]:
    """Texts that are costly to read, split or compute."""

    def translate(text: str, text_format: str = "text", source: str = "en") -> bytes:
        target = "de" if source != "de" else "en"
        return post_json("/translate", {"q": text, "source": source, "target": target, "format": text_format})

    patterns = (
        "http://a.",
        "a@b.",
        "1.2,",
        "{{",
        "${a",
        "%(a",
        "/a",
        "`a",
        ":-)",
        "\U0001f600\ufe0f\u200d",
        "- ",
        "e\u0301",
    )
    return {
        "two megabytes of one letter": [post_json("/tokenize", {"inputs": "a" * 2_000_000, "model": "generate-en"})],
        "100,000 letters to tokenize": [
            post_json("/tokenize", {"inputs": "a" * 100_000, "model": model})
            for model in ("generate-en", "en-de", "embed-en-de")
        ],
        "a text of 33,000 sentences": [translate("a. " * 33_000)],
        "a word of 60,000 letters": [translate("a" * 60_000)],
        "256 texts": [
            post_json("/translate", {"q": ["The house is old. " * 20] * 256, "source": "en", "target": "de"})
        ],
        "texts of links, addresses and signs": [translate(sign * (90_000 // len(sign))) for sign in patterns],
        "texts of digits, white space and breaks": [
            translate(sign * 90_000) for sign in ("1", " ", "\n", "\t a", "\u00a0")
        ]
        + [translate("a" + " " * 90_000 + "b", source="auto")],
        "30,000 open tags": [translate("<b>" * 30_000 + "a", "html"), translate("<p>a" * 25_000, "html")],
        "tags within tags, references": [
            translate(text, "html") for text in ("<" * 90_000, "&amp;" * 19_000, "<!--" * 22_000, "<a b='" * 16_000)
        ],
        "files of 90 kB": [upload("a.txt", b"The house is old. " * 5_000)] * 4,
    }


def _computations() -> dict[str, list[bytes]]:
    """Short requests for much."""
    long_inputs = ["the house is old and " * 200] * 32
    whole = {"prompt": "a b c d e f g h " * 14, "kind": "decoder"}
    many = {"prompt": ["Once upon a time there was a house. " * 10] * 8, "n": 8, "best_of": 8, "max_tokens": 64}
    stops = {"stop": ["qxj" * 30] * 4, "logit_bias": dict.fromkeys(map(str, range(1000)), 1)}
    return {
        "32 long inputs": [post_json("/embed", {"inputs": long_inputs})] * 4,
        "vectors of all tokens": [post_json("/embed_all", {"inputs": long_inputs})] * 4,
        "all attention maps": [post_json("/attention", whole), post_json("/attention", {**whole, "norms": True})] * 2,
        "8 x 8 prompts": [post_json("/v1/completions", {**many, "logprobs": 5, "echo": True})],
        "stops and biases": [post_json("/v1/completions", {"prompt": "a", "max_tokens": 200, **stops})] * 4,
    }


async def _hold_open(target: Target, count: int, content: bytes) -> None:
    """Connections that send `content` and nothing more, until the server closes them."""

    async def hold() -> None:
        status = NO_ANSWER
        with suppress(OSError):
            reader, writer = await target.connect()
            writer.write(content)
            with suppress(TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_SLOW_SECONDS):
                    status, _ = await read_answer(reader)
            await close(writer)
        target.count(status, content or b"(nothing)")

    await asyncio.gather(*(hold() for _ in range(count)))


_SLOW_BODY = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"


async def _many_connections(target: Target) -> None:
    """Connections that are all open at a time; then each asks."""
    streams = [await target.connect() for _ in range(2_000)]
    request = write_request("GET", "/languages")
    for _, writer in streams:
        writer.write(request)
    for reader, _ in streams:
        status = NO_ANSWER
        with suppress(OSError, asyncio.IncompleteReadError):
            status, _ = await read_answer(reader)
        target.count(status, request)
    await asyncio.gather(*(close(writer) for _, writer in streams))


async def _never_read(target: Target) -> None:
    """Clients that ask for much, 16 times each, and read nothing."""
    request = write_request("GET", "/openapi.json")
    streams = []
    for _ in range(50):
        reader, writer = await target.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001  # a stream reads on by itself
        writer.write(request * 16)
        streams.append(writer)
    await asyncio.sleep(5)
    for writer in streams:
        writer.transport.abort()
        target.count(NO_ANSWER, request)


async def _leave_early(target: Target) -> None:
    """Clients that close in the middle of their request or of its answer."""
    for request in ordinary_requests():
        for share in (0.5, 0.99, 1.0):
            _, writer = await target.connect()
            writer.write(request[: int(len(request) * share)])
            await asyncio.sleep(0.01)
            writer.transport.abort()
            target.count(NO_ANSWER, request)


async def _chunked_body(target: Target) -> None:
    """A body of one byte in a chunk, all of it well formed."""
    head = (
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    body = b'{"q":"' + b"a" * 100_000 + b'"}'
    await target.ask(head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")


async def _pipeline(target: Target) -> None:
    """Requests that wait for no answer."""
    request = write_request("GET", "/languages")
    reader, writer = await target.connect()
    writer.write(request * 1_000)
    with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(_SLOW_SECONDS):
            while True:
                status, _ = await read_answer(reader)
                target.count(status, request)
    await close(writer)
