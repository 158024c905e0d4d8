"""Our side: the engines in process with what the server gives them on the device, behind calls that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.ours import EngineDecoder
from bench.side import Text, Threads
from export.bundle import Bundle
from service.runtime.step_graphs import ObserveRun, Run

Tokens = list[list[int]]
TokenIds = tuple[int, ...]

Writer = Callable[[Sequence[TokenIds], int, int], Tokens]
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


def open_decoder(
    bundle: Path, precision: str, device: str, num_rows: int, observe: ObserveRun | None = None
) -> EngineDecoder:
    """An engine with the server's limits that has room for `num_rows` rows."""
    return EngineDecoder(bundle, precision, Threads(1, 1), device, num_rows, observe)


def write(decoder: EngineDecoder, texts: Sequence[TokenIds], beam_size: int, num_new_tokens: int) -> Tokens:
    """The best output of each source, or the stream that continues each prompt."""
    outputs = decoder.run([Text(ids, num_new_tokens, beam_size) for ids in texts])
    return [list(output.token_ids) for output in outputs]


@contextmanager
def writer(
    bundle: Bundle, precision: str, device: str, num_rows: int, observe: ObserveRun | None = None
) -> Iterator[Writer]:
    """What makes whole outputs with a bundle that translates or continues, for as long as the context lasts."""
    decoder = open_decoder(bundle.path, precision, device, num_rows, observe)
    try:
        yield partial(write, decoder)
    finally:
        decoder.close()
