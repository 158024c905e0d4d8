"""Prompts of mixed lengths that arrive one by one, by chance: continuous batching beside a batch at a time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from bench.arrivals import poisson_times
from bench.generate_batches import gaps, milliseconds
from bench.generation import MAX_ROWS, BatchCall, Generator, Output, Prompt

LOADS = (0.5, 0.8)
"""Rates at which prompts arrive, in shares of what our engine finishes when all of them are there at once."""

_TIMEOUT_SECONDS = 300.0


class Server(Protocol):
    """One side under load."""

    name: str
    precision: str
    setting: str

    def submit(self, prompt: Prompt) -> Future[Output]:
        """Continue one prompt that has just arrived."""


@dataclass(frozen=True)
class GenerateLoad:
    """What one side did under one load. Times in seconds; those of requests count from their arrival."""

    model: str
    side: str
    precision: str
    setting: str
    share: float
    rate: float
    seconds: float
    first_tokens: tuple[float, ...]
    gaps: tuple[float, ...]
    latencies: tuple[float, ...]
    num_tokens: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "side": self.side,
            "precision": self.precision,
            "setting": self.setting,
            "share_of_capacity": self.share,
            "arrivals_per_second": round(self.rate, 3),
            "requests": len(self.latencies),
            "requests_per_second": round(len(self.latencies) / self.seconds, 3),
            "tokens_per_second": round(self.num_tokens / self.seconds, 2),
            **milliseconds("first_token", self.first_tokens),
            **milliseconds("gap", self.gaps),
            **milliseconds("latency", self.latencies),
        }


class BatchAtATime:
    """A thread for each of `calls` collects what waits, and again when that is done: no prompt joins a batch that runs.

    Tokens are still told as they come, and a row that has ended computes no more, which not every such server has.
    """

    def __init__(self, name: str, side: Generator, calls: Sequence[BatchCall], max_batch_size: int = MAX_ROWS) -> None:
        self.name, self.precision, self.setting = name, side.precision, side.setting
        self._max_batch_size = max_batch_size
        self._waiting: queue.SimpleQueue[tuple[Prompt, Future[Output]] | None] = queue.SimpleQueue()
        self._gatherers = [threading.Thread(target=self._gather, args=(call,), daemon=True) for call in calls]
        for thread in self._gatherers:
            thread.start()

    def submit(self, prompt: Prompt) -> Future[Output]:
        future: Future[Output] = Future()
        self._waiting.put((prompt, future))
        return future

    def _gather(self, call: BatchCall) -> None:
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
            _answer(call, items)

    def close(self) -> None:
        """Finish what waits, and end the threads."""
        for _ in self._gatherers:
            self._waiting.put(None)
        for thread in self._gatherers:
            thread.join()


def _answer(call: BatchCall, items: Sequence[tuple[Prompt, Future[Output]]]) -> None:
    try:
        outputs = call([prompt for prompt, _ in items])
    except Exception as error:  # noqa: BLE001  whatever it was, nobody may wait for it for ever
        for _, future in items:
            future.set_exception(error)
        return
    for (_, future), output in zip(items, outputs, strict=True):
        future.set_result(output)


def capacity(side: Generator, prompts: Sequence[Prompt], clock: Callable[[], float] = time.perf_counter) -> float:
    """Requests a second when all of `prompts` are there at once."""
    side.generate(prompts[: 2 * MAX_ROWS])  # tables grow on first use
    start = clock()
    side.generate(prompts)
    return len(prompts) / (clock() - start)


def run_load(model: str, side: Server, prompts: Sequence[Prompt], share: float, rate: float) -> GenerateLoad:
    """Every prompt arrives at its own time, `rate` a second on average; all sides see the same times."""
    start = time.perf_counter()
    due = [start + offset for offset in poisson_times(rate, len(prompts))]
    futures = []
    for prompt, moment in zip(prompts, due, strict=True):
        time.sleep(max(0.0, moment - time.perf_counter()))
        futures.append(side.submit(prompt))
    outputs = [future.result(_TIMEOUT_SECONDS) for future in futures]
    return GenerateLoad(
        model=model,
        side=side.name,
        precision=side.precision,
        setting=side.setting,
        share=share,
        rate=rate,
        seconds=max(output.times[-1] for output in outputs) - start,
        # From when it was due: a generator of load that runs late must not hide waiting.
        first_tokens=tuple(output.times[0] - moment for output, moment in zip(outputs, due, strict=True)),
        gaps=tuple(gaps(outputs)),
        latencies=tuple(output.times[-1] - moment for output, moment in zip(outputs, due, strict=True)),
        num_tokens=sum(len(output.token_ids) for output in outputs),
    )
