"""Our engine in process, over a bundle: what `python -m service` runs behind its HTTP layer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from bench.decoding import Job, Settings, Source, Threads
from export.bundle import load_bundle
from service.engine.engine import Engine
from service.engine.types import DecodingOptions, GenerationResult, InferenceRequest
from service.engine.waiting import EngineLimits
from service.runtime.backend import OnnxBackend


class EngineDecoder:
    """An engine of `threads.workers` loops, each with `threads.each` threads of ONNX Runtime."""

    name = "polyhead"

    def __init__(
        self, bundle: Path, precision: str, threads: Threads, limits: EngineLimits | None = None, device: str = "cpu"
    ) -> None:
        self.threads = threads
        backend = OnnxBackend(load_bundle(bundle), precision, device, num_threads=threads.each)
        self.engine = Engine(backend, limits or EngineLimits(), num_loops=threads.workers)
        self.engine.start()
        self._events = asyncio.new_event_loop()

    def job(self, sources: Sequence[Source], settings: Settings) -> Job:
        requests = [_request(source, settings) for source in sources]
        return lambda: self._events.run_until_complete(self.engine.run(requests))

    def tokens(self, answer: Sequence[GenerationResult]) -> list[list[int]]:
        return [list(result.best.token_ids) for result in answer]

    def submit(self, source: Source, settings: Settings) -> Future[GenerationResult]:
        return self.engine.submit(_request(source, settings))

    def close(self) -> None:
        self.engine.close()
        self._events.close()


def _request(source: Source, settings: Settings) -> InferenceRequest:
    options = DecodingOptions(beam_size=settings.beam_size, max_new_tokens=settings.max_new_tokens)
    return InferenceRequest(source, options)
