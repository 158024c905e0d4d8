"""Our side: the engines in process with what the server gives them on the device, behind calls that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.decoding import Settings, Source, Threads
from bench.ours import EngineDecoder
from export.bundle import Bundle, load_bundle
from service.engine.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.embedding_engine import EmbeddingEngine
from service.engine.embedding_line import EmbeddingLimits
from service.engine.generation.engine import GenerationEngine
from service.engine.generation.line import GenerationLimits
from service.engine.generation.types import GenerationRequest
from service.engine.waiting import EngineLimits
from service.runtime.decoder import OnnxGenerationBackend
from service.runtime.encoder import OnnxEncoderBackend

_ROWS = 64
_MANY = 1 << 20
_ON_CUDA = {"translate_overhead": 1024, "embed_overhead": 1024, "batch_tokens": 16_384, "prompt_tokens": 4096}
_ON_CPU = {"translate_overhead": 24, "embed_overhead": 12, "batch_tokens": 1024, "prompt_tokens": 256}
"""The server's own, see service.loading."""

Tokens = list[list[int]]

Writer = Callable[[Sequence[Source], int, int], Tokens]
"""The outputs of some sources, with a beam of so many, and so many tokens each at most."""


def _defaults(device: str) -> dict[str, int]:
    return _ON_CUDA if device == "cuda" else _ON_CPU


def open_translator(bundle: Path, precision: str, device: str, num_rows: int) -> EngineDecoder:
    """An engine that has room for `num_rows` rows."""
    limits = EngineLimits(
        max_rows=max(_ROWS, num_rows),
        max_waiting_requests=_MANY,
        max_waiting_tokens=_MANY,
        overhead_tokens=_defaults(device)["translate_overhead"],
    )
    return EngineDecoder(bundle, precision, Threads(1, 1), limits, device)


def translate(decoder: EngineDecoder, sources: Sequence[Source], beam_size: int, num_new_tokens: int) -> Tokens:
    """The best output of each source."""
    return decoder.tokens(decoder.job(sources, Settings(beam_size, num_new_tokens))())


class Generator:
    """Streams, read token by token as a server reads them; ends count as tokens."""

    def __init__(self, bundle: Path, precision: str, device: str, num_rows: int) -> None:
        limits = GenerationLimits(
            max_rows=max(_ROWS, num_rows),
            max_waiting_requests=_MANY,
            max_waiting_tokens=_MANY,
            max_cached_tokens=_MANY,
            max_batch_tokens=_defaults(device)["prompt_tokens"],
            max_prefix_tokens=1,  # else only the first round would read its prompts
        )
        self.engine = GenerationEngine(OnnxGenerationBackend(load_bundle(bundle), precision, device), limits)
        self.engine.start()
        self._events = asyncio.new_event_loop()

    def __call__(self, prompts: Sequence[Sequence[int]], num_new_tokens: int) -> Tokens:
        return self._events.run_until_complete(self._all(prompts, num_new_tokens))

    async def _all(self, prompts: Sequence[Sequence[int]], num_new_tokens: int) -> Tokens:
        return list(await asyncio.gather(*(self._one(prompt, num_new_tokens) for prompt in prompts)))

    async def _one(self, prompt: Sequence[int], num_new_tokens: int) -> list[int]:
        request = GenerationRequest(input_ids=tuple(prompt), max_new_tokens=num_new_tokens, ignore_eos=True)
        return [event.token_id async for event in await self.engine.open(request)]

    def close(self) -> None:
        self.engine.close()
        self._events.close()


@contextmanager
def writer(bundle: Bundle, precision: str, device: str, num_rows: int) -> Iterator[Writer]:
    """What makes whole outputs with a bundle that translates or continues, for as long as the context lasts."""
    side: EngineDecoder | Generator
    if bundle.config.architecture == "encoder_decoder":
        side = decoder = open_translator(bundle.path, precision, device, num_rows)
        write: Writer = partial(translate, decoder)
    else:
        side = generator = Generator(bundle.path, precision, device, num_rows)

        def write(sources: Sequence[Source], beam_size: int, num_new_tokens: int) -> Tokens:
            assert beam_size == 1, "streams are not searched"
            return generator(sources, num_new_tokens)

    try:
        yield write
    finally:
        side.close()


class Embedder:
    """Pooled vectors of texts as token ids."""

    def __init__(self, bundle: Path, precision: str, device: str) -> None:
        backend = OnnxEncoderBackend(load_bundle(bundle), precision, device)
        batch_tokens = max(_defaults(device)["batch_tokens"], backend.max_input_tokens)
        limits = EmbeddingLimits(batch_tokens, _MANY, _MANY, _defaults(device)["embed_overhead"])
        self.engine = EmbeddingEngine(backend, limits)
        self.engine.start()
        self._events = asyncio.new_event_loop()

    async def run(self, texts: Sequence[Sequence[int]]) -> list[EmbeddingResult]:
        """The engine's own answer, on the caller's event loop."""
        return await self.engine.run([EmbeddingRequest(tuple(text)) for text in texts])

    def __call__(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        return np.stack([result.values for result in self._events.run_until_complete(self.run(texts))])

    def close(self) -> None:
        self.engine.close()
        self._events.close()
