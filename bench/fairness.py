"""A short request beside a heavy client: how much longer it takes than alone, at our server with its defaults.

`measure_fairness` asks a server that runs; `python -m bench fairness` starts one with the shipped bundles.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.machine import describe_machine
from bench.rounds import percentile
from bench.servers import free_port, running
from bench.side import BenchError
from bench.wire import read_answer, write_request

ROOT = Path(__file__).parent.parent
BUNDLES = ROOT / "bundles"
SENTENCES = Path(__file__).parent / "sentences.en.txt"

_PAUSE_SECONDS = 0.02
"""Between two short requests of one client, so that they alone load no server."""
_SETTLE_SECONDS = 1.0
"""After the heavy clients have left, until the server has dropped their work."""
_BOUNDARY = "fairness-4ae5d2c1"


@dataclass(frozen=True)
class Post:
    """One request."""

    path: str
    content: bytes
    content_type: str = "application/json"

    @property
    def wire(self) -> bytes:
        return write_request("POST", self.path, self.content, self.content_type)


@dataclass(frozen=True)
class Case:
    """A heavy client, with one connection for each of `heavy`, and what a short request may cost beside it.

    `short` and `heavy` make a new request each time, so that nothing is answered from what is kept of the last.
    """

    name: str
    short: Callable[[random.Random], Post]
    heavy: Sequence[Callable[[random.Random], Post]]
    max_p50_ratio: float = 3.5
    max_p99_ratio: float = 5.0


@dataclass(frozen=True)
class FairnessResult:
    """Latencies of the short request in seconds, in ascending order of their asking, and what became of the heavy."""

    case: Case
    alone: tuple[float, ...]
    beside: tuple[float, ...]
    heavy_answers: dict[int, int]
    """How many heavy requests were answered, by status."""

    @property
    def p50_ratio(self) -> float:
        return percentile(self.beside, 50) / percentile(self.alone, 50)

    @property
    def p99_ratio(self) -> float:
        return percentile(self.beside, 99) / percentile(self.alone, 99)

    @property
    def is_fair(self) -> bool:
        return self.p50_ratio <= self.case.max_p50_ratio and self.p99_ratio <= self.case.max_p99_ratio

    def to_dict(self) -> dict[str, Any]:
        def milliseconds(values: Sequence[float], share: float) -> float:
            return round(1000 * percentile(values, share), 2)

        return {
            "case": self.case.name,
            "requests": len(self.beside),
            "alone_p50_milliseconds": milliseconds(self.alone, 50),
            "beside_p50_milliseconds": milliseconds(self.beside, 50),
            "p50_ratio": round(self.p50_ratio, 2),
            "max_p50_ratio": self.case.max_p50_ratio,
            "alone_p99_milliseconds": milliseconds(self.alone, 99),
            "beside_p99_milliseconds": milliseconds(self.beside, 99),
            "p99_ratio": round(self.p99_ratio, 2),
            "max_p99_ratio": self.case.max_p99_ratio,
            "heavy_answers": {str(status): count for status, count in sorted(self.heavy_answers.items())},
            "is_fair": self.is_fair,
        }


# The cases


def _json(path: str, value: object) -> Post:
    return Post(path, json.dumps(value).encode())


def _file(name: str, text: str) -> Post:
    fields = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n'
    fields += f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="target"\r\n\r\nde\r\n'
    fields += f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    content = f"{fields}{text}\r\n--{_BOUNDARY}--\r\n".encode()
    return Post("/translate_file", content, f"multipart/form-data; boundary={_BOUNDARY}")


def _prose(chance: random.Random, num_characters: int) -> str:
    """English of about so many characters, in sentences that come in an order of chance."""
    sentences = SENTENCES.read_text(encoding="utf-8").split("\n")
    found, length = [], 0
    while length < num_characters:
        found.append(chance.choice(sentences))
        length += len(found[-1]) + 1
    return " ".join(found)[:num_characters]


def _short_text(chance: random.Random) -> str:
    return f"Where is the station number {chance.randrange(1000)}?"


def _translate(q: object) -> Post:
    return _json("/translate", {"q": q, "source": "en", "target": "de"})


def _generate(chance: random.Random, num_characters: int, num_new: int) -> Post:
    return _json("/generate", {"inputs": _prose(chance, num_characters), "parameters": {"max_new_tokens": num_new}})


_MANY_TEXTS, _MANY_CHARACTERS = 256, 97_000
_FILE_CHARACTERS = 90_000
_NUM_EMBEDDED, _EMBEDDED_CHARACTERS = 32, 1500
_NUM_PROMPTS, _PROMPT_CHARACTERS, _PROMPT_NEW_TOKENS = 8, 800, 16

CASES = (
    Case(
        "/translate, 256 texts",
        lambda chance: _translate(_short_text(chance)),
        [lambda chance: _translate([_prose(chance, _MANY_CHARACTERS // _MANY_TEXTS) for _ in range(_MANY_TEXTS)])],
    ),
    Case(
        '/translate, "a" * 60000',
        lambda chance: _translate(_short_text(chance)),
        [lambda _: _translate("a" * 60_000)],
    ),
    Case(
        "/translate_file, two of 90 kB",
        lambda chance: _file("short.txt", _short_text(chance)),
        [lambda chance: _file("long.txt", _prose(chance, _FILE_CHARACTERS))] * 2,
    ),
    Case(
        "/embed, 32 long inputs",
        lambda chance: _json("/embed", {"inputs": _short_text(chance)}),
        [lambda chance: _json("/embed", {"inputs": [_prose(chance, _EMBEDDED_CHARACTERS)] * _NUM_EMBEDDED})],
    ),
    Case(
        "/generate, 8 of the longest prompts",
        lambda chance: _generate(chance, 30, 1),
        [lambda chance: _generate(chance, _PROMPT_CHARACTERS, _PROMPT_NEW_TOKENS)] * _NUM_PROMPTS,
        max_p50_ratio=3.0,
        max_p99_ratio=3.0,
    ),
)


# The measurement


class _Client:
    """A connection of its own, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, post: Post) -> tuple[int, bytes]:
        self._writer.write(post.wire)
        return await read_answer(self._reader)


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[_Client]:
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port, limit=1 << 24)
    try:
        yield _Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def measure_fairness(
    url: str, cases: Sequence[Case] = CASES, *, rounds: int = 3, num_requests: int = 100
) -> list[FairnessResult]:
    """Ask the server at `url` for `num_requests` short requests alone, then beside the heavy client, in each round.

    All connections come from this machine, so to a server without keys they are one client: a request has to find its
    turn among those of its own client too. BenchError for a short request that is not answered with 200.
    """
    results = []
    for case in cases:
        chance = random.Random(7)
        alone: list[float] = []
        beside: list[float] = []
        answers: dict[int, int] = {}
        async with _connected(url) as short:
            await _ask_in_turn(short, case, chance, 10)  # warm
            for _ in range(rounds):
                alone += await _ask_in_turn(short, case, chance, num_requests)
                async with _loaded(url, case, chance, answers):
                    beside += await _ask_in_turn(short, case, chance, num_requests)
                await asyncio.sleep(_SETTLE_SECONDS)
        results.append(FairnessResult(case, tuple(alone), tuple(beside), answers))
    return results


async def _ask_in_turn(client: _Client, case: Case, chance: random.Random, count: int) -> list[float]:
    latencies = []
    for _ in range(count):
        post = case.short(chance)
        start = time.perf_counter()
        status, answer = await client.ask(post)
        latencies.append(time.perf_counter() - start)
        if status != 200:
            raise BenchError(f"{case.name}: a short request was answered with {status}: {answer[:300]!r}")
        await asyncio.sleep(_PAUSE_SECONDS)
    return latencies


@asynccontextmanager
async def _loaded(url: str, case: Case, chance: random.Random, answers: dict[int, int]) -> AsyncIterator[None]:
    """The heavy client asks again as soon as it is answered, and leaves, answered or not, at the end of the context."""

    async def ask(client: _Client, make: Callable[[random.Random], Post]) -> None:
        while True:
            status, _ = await client.ask(make(chance))
            answers[status] = answers.get(status, 0) + 1

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_connected(url)) for _ in case.heavy]
        tasks = [asyncio.create_task(ask(client, make)) for client, make in zip(clients, case.heavy, strict=True)]
        await asyncio.sleep(0.1)  # so that the first short request finds it at work
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            failed = [error for error in done if error and not isinstance(error, asyncio.CancelledError)]
            if failed:
                raise BenchError(f"{case.name}: the heavy client failed: {failed[0]!r}")


@contextmanager
def serving_bundles(bundles: Path = BUNDLES) -> Iterator[str]:
    """Our server with its defaults on a free port; yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "service", "--bundles", str(bundles), "--port", str(port)]
    with running([*command, "--log-level", "error"], url, ROOT):
        yield url


def fairness_table(results: Sequence[FairnessResult]) -> str:
    """The results as a Markdown table, latencies in milliseconds."""
    lines = [
        "| heavy client | requests | p50 alone | beside | ratio | at most | p99 alone | beside | ratio | at most | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        row = result.to_dict()
        cells = [row["case"], row["requests"]]
        for share in ("p50", "p99"):
            cells += [row[f"alone_{share}_milliseconds"], row[f"beside_{share}_milliseconds"]]
            cells += [row[f"{share}_ratio"], row[f"max_{share}_ratio"]]
        lines.append("| " + " | ".join(map(str, cells)) + f" | {'fair' if result.is_fair else 'NOT FAIR'} |")
    return "\n".join(lines)


def run_fairness(
    cases: Sequence[Case] = CASES, *, bundles: Path = BUNDLES, rounds: int = 3, num_requests: int = 100
) -> list[FairnessResult]:
    """Start a server, measure, stop it."""
    with serving_bundles(bundles) as url:
        return asyncio.run(measure_fairness(url, cases, rounds=rounds, num_requests=num_requests))


def add_fairness(commands: Any) -> None:
    """Add the command to the benchmark's parser."""
    fairness = commands.add_parser(
        "fairness",
        help="a short request beside heavy clients of our server",
        description="Start a server with the defaults and ask it for one short request after the other, alone and "
        "beside a client that asks for as much as it may, round after round. Prints how many times longer the short "
        "request takes beside each heavy client, and how many times it may.",
    )
    fairness.add_argument("--only", action="append", default=[], metavar="WORDS", help="only cases with these words")
    fairness.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds (default: %(default)s)")
    fairness.add_argument(
        "--requests", type=int, default=100, metavar="N", help="short requests, alone and beside, in each round"
    )
    fairness.add_argument("--bundles", type=Path, default=BUNDLES, metavar="FOLDER", help="what is served")
    fairness.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    fairness.set_defaults(run=_run_flags, plot=None, threads=1)


def _run_flags(flags: argparse.Namespace) -> dict[str, Any]:
    cases = [case for case in CASES if not flags.only or any(part in case.name for part in flags.only)]
    results = run_fairness(cases, bundles=flags.bundles, rounds=flags.rounds, num_requests=flags.requests)
    print(fairness_table(results))
    return {"machine": describe_machine(), "fairness": [result.to_dict() for result in results]}
