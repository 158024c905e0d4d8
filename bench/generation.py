"""What is compared: something that continues prompts token by token, ours or a peer's, behind one small interface."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.decoding import Threads
from export.bundle import load_bundle
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.types import DecodingOptions, DecodingRequest
from service.runtime.decoder import OnnxDecoderBackend

MAX_ROWS = 32
"""The most streams at a time of one loop of ours, and of one batch of any side."""

_MOST_TOKENS = 1 << 20


@dataclass(frozen=True)
class Prompt:
    """What is to be continued, and by how many tokens exactly."""

    token_ids: tuple[int, ...]
    max_new_tokens: int


@dataclass(frozen=True)
class Output:
    """The tokens of one continuation, and when the caller had each, in seconds on `time.perf_counter`'s clock."""

    token_ids: tuple[int, ...]
    times: tuple[float, ...]


class Generator(Protocol):
    """One side of the comparison, loaded. `setting` says how it shares threads."""

    name: str
    precision: str
    setting: str

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        """Continue all of `prompts` at once, greedily."""

    def close(self) -> None:
        """Free threads and memory."""


class EngineGenerator:
    """Our engine in process: `threads.workers` loops, each with `threads.each` threads of ONNX Runtime.

    Nothing that it has read of a prompt is kept for the next one, since the benchmark gives the same prompts again.
    """

    name = "polyhead"

    def __init__(self, bundle: Path, precision: str, threads: Threads) -> None:
        self.precision, self.threads, self.setting = precision, threads, str(threads)
        self._backend = OnnxDecoderBackend(load_bundle(bundle), precision, num_threads=threads.each)
        self._engines = [self._engine(threads.workers)]
        self._events = asyncio.new_event_loop()
        self._reader = threading.Thread(target=self._events.run_forever, name="reader", daemon=True)
        self._reader.start()

    def _engine(self, num_loops: int) -> DecodingEngine:
        limits = DecodingLimits(
            max_rows=MAX_ROWS, max_prefix_tokens=1, max_waiting_requests=_MOST_TOKENS, max_waiting_tokens=_MOST_TOKENS
        )
        engine = DecodingEngine(self._backend, limits, num_loops=num_loops)
        engine.start()
        return engine

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        return self._generate(self._engines[0], prompts)

    def single_loops(self) -> list[BatchCall]:
        """A call for each of as many workers, which runs a batch in one loop of its own over the same weights."""
        engines = [self._engine(1) for _ in range(self.threads.workers)]
        self._engines += engines
        return [partial(self._generate, engine) for engine in engines]

    def _generate(self, engine: DecodingEngine, prompts: Sequence[Prompt]) -> list[Output]:
        async def read_all() -> list[Output]:
            return await asyncio.gather(*(_read(engine, prompt) for prompt in prompts))

        return asyncio.run_coroutine_threadsafe(read_all(), self._events).result()

    def submit(self, prompt: Prompt) -> Future[Output]:
        """Continue one prompt that has just arrived, together with those that run."""
        return asyncio.run_coroutine_threadsafe(_read(self._engines[0], prompt), self._events)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()
        self._events.call_soon_threadsafe(self._events.stop)
        self._reader.join()
        self._events.close()


class BatchCall(Protocol):
    """A call that continues a batch and returns when all of it is done; one at a time."""

    def __call__(self, prompts: Sequence[Prompt]) -> list[Output]: ...


async def _read(engine: DecodingEngine, prompt: Prompt) -> Output:
    options = DecodingOptions(max_new_tokens=prompt.max_new_tokens)
    request = DecodingRequest(prompt_ids=prompt.token_ids, options=options, ignore_eos=True)
    token_ids, times = [], []
    async for event in await engine.open(request):
        times.append(time.perf_counter())
        token_ids.append(event.token_id)
    return Output(tuple(token_ids), tuple(times))


def random_prompts(
    count: int, vocab_size: int, lengths: tuple[int, int], new_tokens: tuple[int, int], seed: int = 1
) -> list[Prompt]:
    """`count` prompts of random words, with `lengths` tokens and `new_tokens` to come: from the least to the most."""
    chance = random.Random(seed)
    return [
        Prompt(
            tuple(chance.randrange(1, vocab_size) for _ in range(chance.randint(*lengths))), chance.randint(*new_tokens)
        )
        for _ in range(count)
    ]
