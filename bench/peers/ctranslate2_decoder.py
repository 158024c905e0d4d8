"""CTranslate2's translator behind our interface."""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ctranslate2

from bench.decoding import Job, Settings, Source, Threads

COMPUTE_TYPES = {"fp32": "float32", "int8": "int8"}
"""Its names for our precisions. It quantises weights as it loads them, per output channel, and activations per row."""

_MAX_CALLERS = 64

_ISA_VARIABLE = "CT2_FORCE_CPU_ISA"


def use_best_kernels(cpu_flags: Sequence[str]) -> str:
    """Let CTranslate2 use AVX-512 where the processor has it, and say so; to be called before the first translator.

    By itself it stops at AVX2; AVX-512 made it up to 4 % faster where we tried it. Its choice among MKL and oneDNN
    was the faster one. What the environment already says (CT2_FORCE_CPU_ISA, CT2_USE_MKL) stands.
    """
    if "avx512f" in cpu_flags:
        os.environ.setdefault(_ISA_VARIABLE, "AVX512")
    return f"{_ISA_VARIABLE}={os.environ.get(_ISA_VARIABLE, '')} CT2_USE_MKL={os.environ.get('CT2_USE_MKL', '')}"


class Ctranslate2Decoder:
    """A translator of `threads.workers` parallel batches of `threads.each` threads each.

    A batch is cut so that every worker has a part of it. `submit` makes one call for each source, from a
    thread of its own: the translator queues calls and does not join them.
    """

    name = "ctranslate2"

    def __init__(self, model: Path, precision: str, threads: Threads) -> None:
        self.threads = threads
        self._translator = ctranslate2.Translator(
            str(model),
            device="cpu",
            compute_type=COMPUTE_TYPES[precision],
            inter_threads=threads.workers,
            intra_threads=threads.each,
        )
        self._callers = ThreadPoolExecutor(_MAX_CALLERS, thread_name_prefix="caller")

    def job(self, sources: Sequence[Source], settings: Settings) -> Job:
        batch = [as_strings(source) for source in sources]
        size = math.ceil(len(batch) / self.threads.workers)
        return lambda: self.translate(batch, settings, size)

    def translate(self, batch: list[list[str]], settings: Settings, max_batch_size: int) -> list[Any]:
        """One call of the library, with its defaults but for what defines the search."""
        return self._translator.translate_batch(  # type: ignore[no-any-return]
            batch,
            max_batch_size=max_batch_size,
            beam_size=settings.beam_size,
            length_penalty=1.0,
            max_decoding_length=settings.max_new_tokens,
        )

    def tokens(self, answer: Sequence[Any]) -> list[list[int]]:
        return [[int(token) for token in result.hypotheses[0]] for result in answer]

    def submit(self, source: Source, settings: Settings) -> Future[Any]:
        batch = [as_strings(source)]
        return self._callers.submit(lambda: self.translate(batch, settings, 0)[0])

    def close(self) -> None:
        self._callers.shutdown(cancel_futures=True)
        self._translator.unload_model()


class GatheringDecoder(Ctranslate2Decoder):
    """CTranslate2 behind the batcher that a server around it would have, which is how it serves single requests best.

    One thread for each of its workers takes what waits, up to `max_batch_size`, and translates it in one call. It takes
    neighbours of like length, so little is padded.
    """

    name = "ctranslate2 gathered"

    def __init__(self, model: Path, precision: str, threads: Threads, max_batch_size: int = 32) -> None:
        super().__init__(model, precision, threads)
        self._max_batch_size = max_batch_size
        self._waiting: queue.SimpleQueue[tuple[Source, Settings, Future[Any]] | None] = queue.SimpleQueue()
        self._gatherers = [threading.Thread(target=self._gather, daemon=True) for _ in range(threads.workers)]
        for thread in self._gatherers:
            thread.start()

    def submit(self, source: Source, settings: Settings) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.put((source, settings, future))
        return future

    def _gather(self) -> None:
        while (first := self._waiting.get()) is not None:
            items = [first]
            while len(items) < self._max_batch_size:
                try:
                    item = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    self._waiting.put(None)
                    break
                items.append(item)
            self._translate(items)

    def _translate(self, items: list[tuple[Source, Settings, Future[Any]]]) -> None:
        # A call has one limit for all of its sources.
        settings = max((settings for _, settings, _ in items), key=lambda settings: settings.max_new_tokens)
        try:
            answers = self.translate([as_strings(source) for source, _, _ in items], settings, 0)
        except Exception as error:  # noqa: BLE001  whatever it was, nobody may wait for it for ever
            for _, _, future in items:
                future.set_exception(error)
            return
        for (_, _, future), answer in zip(items, answers, strict=True):
            future.set_result(answer)

    def close(self) -> None:
        for _ in self._gatherers:
            self._waiting.put(None)
        for thread in self._gatherers:
            thread.join()
        super().close()


def as_strings(source: Source) -> list[str]:
    """Token ids as the converted model spells them."""
    return [str(token_id) for token_id in source]
