"""What is compared: a side, ours or a peer's, is opened in a setting, given batches or single requests, and closed."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

NAME = "polyhead"
"""Our side."""

ItemT = TypeVar("ItemT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class BenchError(RuntimeError):
    """The benchmark cannot run; the message says what to do."""


class Threads(NamedTuple):
    """`workers` batches or loops at a time, of `each` threads: 2x1 and 1x2 are the two ways to use two cores."""

    workers: int
    each: int

    def __str__(self) -> str:
        return f"{self.workers}x{self.each}"


def thread_choices(total: int) -> list[Threads]:
    """Every way to share `total` threads evenly, most workers first."""
    return [Threads(workers, total // workers) for workers in range(total, 0, -1) if total % workers == 0]


@dataclass(frozen=True)
class Text:
    """A source to translate, or a prompt to continue by exactly `max_new_tokens`; a translation may end sooner."""

    token_ids: tuple[int, ...]
    max_new_tokens: int
    beam_size: int = 1


@dataclass(frozen=True)
class Output:
    """The tokens written, without end tokens, and of a stream when each came, on the clock of `time.perf_counter`."""

    token_ids: tuple[int, ...]
    times: tuple[float, ...] = ()


class Side(Protocol[ItemT_contra, AnswerT_co]):
    """One side, loaded; items are texts. `setting` says how it shares threads and cuts batches."""

    name: str
    precision: str
    setting: str

    def prepare(self, items: Sequence[ItemT_contra]) -> Callable[[], AnswerT_co]:
        """A call that works on `items`, all there at once, and returns when all are done.

        What a caller could prepare before is done here, outside of the timing.
        """

    async def ask(self, items: Sequence[ItemT_contra]) -> AnswerT_co:
        """One request that has just arrived."""

    def close(self) -> None:
        """Free threads and memory."""


Decoder = Side[Text, list[Output]]
Encoder = Side[str, Vectors]


class Gathered(Generic[ItemT]):
    """A decoder behind the batcher that a server around it would have: no request joins a batch that runs.

    `num_workers` threads each collect what waits, up to `max_batch_size`, let `run` finish it, and collect again.
    """

    def __init__(
        self,
        name: str,
        side: Side[ItemT, list[Output]],
        run: Callable[[Sequence[ItemT]], list[Output]],
        num_workers: int,
        max_batch_size: int = 32,
    ) -> None:
        self.name, self.precision, self.setting = name, side.precision, side.setting
        self.prepare = side.prepare
        self._run, self._max_batch_size = run, max_batch_size
        self._waiting: queue.SimpleQueue[tuple[ItemT, Future[Output]] | None] = queue.SimpleQueue()
        self._gatherers = [threading.Thread(target=self._gather, daemon=True) for _ in range(num_workers)]
        for thread in self._gatherers:
            thread.start()

    async def ask(self, items: Sequence[ItemT]) -> list[Output]:
        futures = [Future[Output]() for _ in items]
        for item, future in zip(items, futures, strict=True):
            self._waiting.put((item, future))
        return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))

    def _gather(self) -> None:
        while (first := self._waiting.get()) is not None:
            taken = [first]
            while len(taken) < self._max_batch_size:
                try:
                    item = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    self._waiting.put(None)
                    break
                taken.append(item)
            self._answer(taken)

    def _answer(self, taken: Sequence[tuple[ItemT, Future[Output]]]) -> None:
        try:
            outputs = self._run([item for item, _ in taken])
        except Exception as error:  # noqa: BLE001  whatever it was, nobody may wait for it for ever
            for _, future in taken:
                future.set_exception(error)
            return
        for (_, future), output in zip(taken, outputs, strict=True):
            future.set_result(output)

    def close(self) -> None:
        """Finish what waits, and end the threads; the side itself stays open."""
        for _ in self._gatherers:
            self._waiting.put(None)
        for thread in self._gatherers:
            thread.join()
