"""Our engine in process, over a bundle: what `python -m service` runs behind its HTTP layer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from bench.decoding import Job, Settings, Source, Threads
from export.bundle import load_bundle
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.types import DecodingOptions, DecodingRequest, Result
from service.runtime.decoder import OnnxDecoderBackend
from service.runtime.step_graphs import ObserveRun


class EngineDecoder:
    """An engine of `threads.workers` loops, each with `threads.each` threads of ONNX Runtime."""

    name = "polyhead"

    def __init__(
        self,
        bundle: Path,
        precision: str,
        threads: Threads,
        limits: DecodingLimits | None = None,
        device: str = "cpu",
        observe: ObserveRun | None = None,
    ) -> None:
        self.threads = threads
        self._backend = OnnxDecoderBackend(
            load_bundle(bundle), precision, device, num_threads=threads.each, observe=observe
        )
        self.engine = DecodingEngine(self._backend, limits or DecodingLimits(), num_loops=threads.workers)
        self.engine.start()
        self._events = asyncio.new_event_loop()

    def job(self, sources: Sequence[Source], settings: Settings) -> Job:
        requests = [self._request(source, settings) for source in sources]
        return lambda: self._events.run_until_complete(self.engine.run(requests))

    def tokens(self, answer: Sequence[Result]) -> list[list[int]]:
        return [list(result.best.token_ids) for result in answer]

    def submit(self, source: Source, settings: Settings) -> Future[Result]:
        return self.engine.submit(self._request(source, settings))

    def close(self) -> None:
        self.engine.close()
        self._events.close()

    def _request(self, source: Source, settings: Settings) -> DecodingRequest:
        # CTranslate2's rule, so that both sides search as long.
        options = DecodingOptions(
            beam_size=settings.beam_size, max_new_tokens=settings.max_new_tokens, early_stopping="always"
        )
        return DecodingRequest(source_ids=source, prompt_ids=(self._backend.bos_id,), options=options)
