"""What is compared: a decoder that takes a batch of sources, ours or a peer's, behind one small interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Source = tuple[int, ...]
"""Token ids of one sentence, with the end token."""


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
class Settings:
    """How to decode; scores are normalised by length on both sides."""

    beam_size: int
    max_new_tokens: int


Job = Callable[[], Any]
"""One call that decodes a batch given beforehand; what it returns, `Decoder.tokens` reads."""


class Decoder(Protocol):
    """One side of the comparison, loaded and warm.

    What a caller could prepare before his request arrives is done in `job`, outside of the timing; what any caller must
    wait for is inside of it.
    """

    name: str
    threads: Threads

    def job(self, sources: Sequence[Source], settings: Settings) -> Job:
        """A call that decodes `sources` as one batch, and returns when all are done."""

    def tokens(self, answer: Any) -> list[list[int]]:
        """The best output of each source from what a job returned, without end tokens."""

    def submit(self, source: Source, settings: Settings) -> Future[Any]:
        """Decode one source that has just arrived; the future's result has at least one attribute or item per token."""

    def close(self) -> None:
        """Free threads and memory."""
