"""What HTTP keeps of the engine's speed: our service in its own process and clients in this one, on the same cores."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.arrivals import closed_loop, percentile
from bench.decoding import Settings, Threads
from bench.embed_load import Ask, http_client
from bench.ours import EngineDecoder
from bench.servers import free_port, running
from model.tokenizer import Tokenizer
from model.translation_format import OWN_FORMAT

TEXTS_PER_REQUEST = (1, 16)


@dataclass(frozen=True)
class HttpResult:
    """The same texts by the engine in process and over HTTP, by the same number of clients. Latencies in seconds."""

    precision: str
    num_clients: int
    texts_per_request: int
    engine_sentences_per_second: float
    http_sentences_per_second: float
    latencies: tuple[float, ...]

    @property
    def kept(self) -> float:
        """The share of the engine's speed that is left behind HTTP."""
        return self.http_sentences_per_second / self.engine_sentences_per_second

    def to_dict(self) -> dict[str, Any]:
        return {
            "precision": self.precision,
            "clients": self.num_clients,
            "texts_per_request": self.texts_per_request,
            "engine_sentences_per_second": round(self.engine_sentences_per_second, 2),
            "http_sentences_per_second": round(self.http_sentences_per_second, 2),
            "kept": round(self.kept, 3),
            "p50_milliseconds": round(1000 * percentile(self.latencies, 50), 1),
            "p99_milliseconds": round(1000 * percentile(self.latencies, 99), 1),
        }


def measure_http(
    bundle: Path,
    precision: str,
    threads: Threads,
    texts: Sequence[str],
    max_new_tokens: int,
    num_clients: int,
    device: str = "cpu",
) -> list[HttpResult]:
    """Translate `texts` by `num_clients` clients, singly and several in a request, with and without HTTP."""
    in_process = _engine_speed(bundle, precision, threads, texts, max_new_tokens, num_clients, device)
    results = []
    with serving(bundle, precision, threads, device) as url:
        for texts_per_request in TEXTS_PER_REQUEST:
            chunks = [texts[start : start + texts_per_request] for start in range(0, len(texts), texts_per_request)]
            asyncio.run(_ask(url, chunks[:num_clients], max_new_tokens, num_clients))  # warm
            start = time.perf_counter()
            latencies = asyncio.run(_ask(url, chunks, max_new_tokens, num_clients))
            speed = len(texts) / (time.perf_counter() - start)
            results.append(HttpResult(precision, num_clients, texts_per_request, in_process, speed, tuple(latencies)))
    return results


def _engine_speed(
    bundle: Path,
    precision: str,
    threads: Threads,
    texts: Sequence[str],
    max_new_tokens: int,
    num_clients: int,
    device: str,
) -> float:
    tokenizer = Tokenizer.load(bundle / "tokenizer.json")
    bound = OWN_FORMAT.bind("en", "de", tokenizer, tokenizer)
    sources = [bound.source_ids(ids) for ids in tokenizer.encode_batch(texts)]
    decoder = EngineDecoder(bundle, precision, threads, device=device)
    try:
        settings = Settings(1, max_new_tokens)
        closed_loop(decoder, sources[:num_clients], settings, num_clients)  # warm
        return closed_loop(decoder, sources, settings, num_clients).requests_per_second
    finally:
        decoder.close()


@contextmanager
def serving(bundle: Path, precision: str, threads: Threads, device: str = "cpu") -> Iterator[str]:
    """Our service on a free port of this machine, from its first healthy answer; yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "service", "--bundles", str(bundle), "--port", str(port), "--device", device]
    command += ["--precision", precision, "--loops", str(threads.workers), "--threads", str(threads.each)]
    command += ["--log-level", "error"]
    with running(command, url, Path(__file__).parent.parent):
        yield url


async def _ask(url: str, chunks: Sequence[Sequence[str]], max_new_tokens: int, num_clients: int) -> list[float]:
    """Clients that ask again as soon as they are answered; the latency of each request."""

    def body(texts: Sequence[str]) -> dict[str, Any]:
        options = {"source": "en", "target": "de", "beam_size": 1, "max_new_tokens": max_new_tokens}
        return {"q": list(texts) if len(texts) > 1 else texts[0], **options}

    connect = http_client(url, "/translate", body)
    waiting, latencies = iter(chunks), []

    async def client(ask: Ask) -> None:
        for chunk in waiting:
            start = time.perf_counter()
            await ask(chunk)
            latencies.append(time.perf_counter() - start)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect()) for _ in range(num_clients)]
        await asyncio.gather(*map(client, clients))
    return latencies
