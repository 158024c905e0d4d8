"""Our side: the engines in process with what the server gives them on the device, behind calls that wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import decoding
from bench.decoding import Source, Threads
from bench.ours import EngineDecoder
from export.bundle import Bundle, load_bundle
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.types import DecodingOptions, DecodingRequest
from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.encode.embedding_engine import EmbeddingEngine
from service.heads.embed.load import embedding_limits
from service.heads.generate.load import generation_limits
from service.heads.translate.load import translation_limits
from service.models.choices import Device
from service.runtime.decoder import OnnxDecoderBackend
from service.runtime.encoder import OnnxEncoderBackend
from service.runtime.step_graphs import ObserveRun, Run
from service.settings import Settings

_MANY = 1 << 20
_CACHE_BYTES = 1 << 40

Tokens = list[list[int]]

Writer = Callable[[Sequence[Source], int, int], Tokens]
"""The outputs of some sources, with a beam of so many, and so many tokens each at most."""


class Steps:
    """How the decoder steps of an engine ran on a device, where they are recorded as CUDA graphs."""

    def __init__(self) -> None:
        self.counts: Counter[Run] = Counter()

    def observer(self, device: str, *, cuda_graphs: bool) -> ObserveRun | None:
        """What a backend is given; None where steps are not to be recorded."""
        return self._count if device == "cuda" and cuda_graphs else None

    def _count(self, run: Run) -> None:
        self.counts[run] += 1


def _settings(num_rows: int = 0) -> Settings:
    """The server's, with as many rows as a case has, where that is more, and a queue for all that is asked at once."""
    settings = Settings(max_waiting_requests=_MANY, max_waiting_tokens=_MANY)
    return settings.model_copy(update={"max_rows": max(settings.max_rows, num_rows)})


def _device(device: str) -> Device:
    return "cuda" if device == "cuda" else "cpu"


def open_translator(
    bundle: Path, precision: str, device: str, num_rows: int, observe: ObserveRun | None = None
) -> EngineDecoder:
    """An engine with the server's limits that has room for `num_rows` rows."""
    limits = translation_limits(_settings(num_rows), _device(device), _CACHE_BYTES)
    return EngineDecoder(bundle, precision, Threads(1, 1), limits, device, observe)


def translate(decoder: EngineDecoder, sources: Sequence[Source], beam_size: int, num_new_tokens: int) -> Tokens:
    """The best output of each source."""
    return decoder.tokens(decoder.job(sources, decoding.Settings(beam_size, num_new_tokens))())


class Generator:
    """Streams, read token by token as a server reads them; ends count as tokens."""

    def __init__(
        self, bundle: Path, precision: str, device: str, num_rows: int, observe: ObserveRun | None = None
    ) -> None:
        loaded = load_bundle(bundle)
        backend = OnnxDecoderBackend(loaded, precision, device, observe=observe)
        # No prefixes are kept: else only the first round would read its prompts.
        settings = _settings(num_rows).model_copy(update={"max_prefix_tokens": 1})
        limits = generation_limits(settings, _device(device), backend.max_total_tokens, _CACHE_BYTES, loaded.name)
        self.engine = DecodingEngine(backend, limits)
        self.engine.start()
        self._events = asyncio.new_event_loop()

    def __call__(self, prompts: Sequence[Sequence[int]], num_new_tokens: int) -> Tokens:
        return self._events.run_until_complete(self._all(prompts, num_new_tokens))

    async def _all(self, prompts: Sequence[Sequence[int]], num_new_tokens: int) -> Tokens:
        return list(await asyncio.gather(*(self._one(prompt, num_new_tokens) for prompt in prompts)))

    async def _one(self, prompt: Sequence[int], num_new_tokens: int) -> list[int]:
        options = DecodingOptions(max_new_tokens=num_new_tokens)
        request = DecodingRequest(prompt_ids=tuple(prompt), options=options, ignore_eos=True)
        return [event.token_id async for event in await self.engine.open(request)]

    def close(self) -> None:
        self.engine.close()
        self._events.close()


@contextmanager
def writer(
    bundle: Bundle, precision: str, device: str, num_rows: int, observe: ObserveRun | None = None
) -> Iterator[Writer]:
    """What makes whole outputs with a bundle that translates or continues, for as long as the context lasts."""
    side: EngineDecoder | Generator
    if bundle.config.architecture == "encoder_decoder":
        side = decoder = open_translator(bundle.path, precision, device, num_rows, observe)
        write: Writer = partial(translate, decoder)
    else:
        side = generator = Generator(bundle.path, precision, device, num_rows, observe)

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
        limits = embedding_limits(_settings(), _device(device), backend.max_input_tokens, bundle.name)
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
