"""Our engines in process, over a bundle: what `python -m service` runs behind its HTTP layer, with the same limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.side import NAME, Output, Text, Threads, Vectors
from export.bundle import Bundle, load_bundle
from model.embedding import input_ids
from model.tokenizer import Tokenizer
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.types import DecodingOptions, DecodingRequest
from service.engine.encode.embedding import EmbeddingRequest
from service.engine.encode.embedding_engine import EmbeddingEngine
from service.heads.embed.load import embedding_limits
from service.heads.generate.load import generation_limits
from service.heads.translate.load import translation_limits
from service.models.choices import Device, choose_cache_bytes
from service.runtime.decoder import OnnxDecoderBackend
from service.runtime.encoder import OnnxEncoderBackend
from service.runtime.step_graphs import ObserveRun
from service.settings import Settings

_MANY = 1 << 30


def server_settings(**changes: Any) -> Settings:
    """The server's, with a queue for all that is asked at once, and no prefixes kept from one round to the next."""
    return Settings(max_waiting_requests=_MANY, max_waiting_tokens=_MANY, max_prefix_tokens=1, **changes)


def decoding_limits(settings: Settings, bundle: Bundle, backend: OnnxDecoderBackend, device: str) -> DecodingLimits:
    """What the server gives an engine that translates or continues texts on `device`."""
    place: Device = "cuda" if device == "cuda" else "cpu"
    cache_bytes = choose_cache_bytes(settings, backend.usable_bytes, 0, bundle.name)
    if bundle.config.architecture == "encoder_decoder":
        return translation_limits(settings, place, cache_bytes)
    return generation_limits(settings, place, backend.max_total_tokens, cache_bytes, bundle.name)


class EngineDecoder:
    """Our engine in `threads.workers` loops, each with `threads.each` threads of ONNX Runtime.

    A bundle that translates is asked for whole outputs, one that generates for streams, in which an end is a token like
    any other. `num_rows` is room that a case needs beyond the server's.
    """

    name = NAME

    def __init__(
        self,
        bundle: Path,
        precision: str,
        threads: Threads,
        device: str = "cpu",
        num_rows: int = 0,
        observe: ObserveRun | None = None,
    ) -> None:
        self.precision, self.threads, self.setting = precision, threads, str(threads)
        loaded = load_bundle(bundle)
        self._backend = OnnxDecoderBackend(loaded, precision, device, num_threads=threads.each, observe=observe)
        settings = server_settings(max_rows=max(Settings().max_rows, num_rows))
        limits = decoding_limits(settings, loaded, self._backend, device)
        self.engine = DecodingEngine(self._backend, limits, num_loops=threads.workers)
        self.engine.start()
        self._events = asyncio.new_event_loop()

    def prepare(self, items: Sequence[Text]) -> Callable[[], list[Output]]:
        requests = [self._request(item) for item in items]
        return lambda: self._events.run_until_complete(self._run(requests))

    def run(self, items: Sequence[Text]) -> list[Output]:
        """All of `items` at once, from any one thread at a time."""
        return self.prepare(items)()

    async def ask(self, items: Sequence[Text]) -> list[Output]:
        return await self._run([self._request(item) for item in items])

    async def _run(self, requests: Sequence[DecodingRequest]) -> list[Output]:
        if self._backend.max_source_tokens:
            return [Output(result.best.token_ids) for result in await self.engine.run(requests)]
        return list(await asyncio.gather(*map(self._stream, requests)))

    async def _stream(self, request: DecodingRequest) -> Output:
        token_ids, times = [], []
        async for event in await self.engine.open(request):
            times.append(time.perf_counter())
            token_ids.append(event.token_id)
        return Output(tuple(token_ids), tuple(times))

    def _request(self, item: Text) -> DecodingRequest:
        # CTranslate2's rule, so that both sides search as long.
        options = DecodingOptions(beam_size=item.beam_size, max_new_tokens=item.max_new_tokens, early_stopping="always")
        if not self._backend.max_source_tokens:
            return DecodingRequest(prompt_ids=item.token_ids, options=options, ignore_eos=True)
        return DecodingRequest(source_ids=item.token_ids, prompt_ids=(self._backend.bos_id,), options=options)

    def close(self) -> None:
        self.engine.close()
        self._events.close()


class EngineEncoder:
    """Our embedding engine in `threads.workers` loops, from texts to unit vectors.

    `window` texts are tokenized at a time, while earlier ones are computed; that many are sorted by length.
    """

    name = NAME

    def __init__(
        self,
        bundle: Path,
        precision: str,
        threads: Threads,
        window: int = 256,
        device: str = "cpu",
        batch_tokens: int = 0,
    ) -> None:
        self.precision, self.setting = precision, f"{threads}, {window} texts"
        self._window, loaded = window, load_bundle(bundle)
        self._tokenizer, self._limit = Tokenizer.load(loaded.tokenizer_path), loaded.embed.max_input_tokens
        place: Device = "cuda" if device == "cuda" else "cpu"
        settings = server_settings(max_embedding_batch_tokens=batch_tokens)
        limits = embedding_limits(settings, place, self._limit, loaded.name)
        backend = OnnxEncoderBackend(loaded, precision, device, num_threads=threads.each)
        self.engine = EmbeddingEngine(backend, limits, num_loops=threads.workers)
        self.engine.start()
        self._events = asyncio.new_event_loop()
        self._known: dict[str, EmbeddingRequest] = {}

    def prepare(self, items: Sequence[str]) -> Callable[[], Vectors]:
        return lambda: self._events.run_until_complete(self._embed(items))

    async def _embed(self, texts: Sequence[str]) -> Vectors:
        """The engine works on what came first while the rest is tokenized, as it does for a server."""
        calls = []
        for start in range(0, len(texts), self._window):
            requests = await asyncio.to_thread(self._requests, texts[start : start + self._window])
            calls.append(asyncio.create_task(self.engine.run(requests)))
        return unit(np.stack([result.values for results in await asyncio.gather(*calls) for result in results]))

    def _requests(self, texts: Sequence[str]) -> list[EmbeddingRequest]:
        return [EmbeddingRequest(tuple(ids)) for ids in input_ids(self._tokenizer, texts, self._limit)]

    async def ask(self, items: Sequence[str]) -> Vectors:
        """Without HTTP and tokenization: a text is tokenized when it comes for the first time."""
        fresh = [text for text in items if text not in self._known]
        self._known.update(zip(fresh, self._requests(fresh), strict=True) if fresh else ())
        return np.stack([result.values for result in await self.engine.run([self._known[text] for text in items])])

    def run_ids(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Pooled vectors of texts as token ids."""
        requests = [EmbeddingRequest(tuple(text)) for text in texts]
        return np.stack([result.values for result in self._events.run_until_complete(self.engine.run(requests))])

    def close(self) -> None:
        self.engine.close()
        self._events.close()


def unit(vectors: Vectors) -> Vectors:
    """Rows of length one."""
    rows: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return rows
