"""A language model that can be asked for its next token only through its cache, and the decoding it must lead to.

The log-probabilities of a row follow from its source and from every token in its own cache, so a row that was mixed up
with another, copied wrongly, or left stale gives other tokens than the oracle.
"""

from __future__ import annotations

import functools
import threading
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from service.engine.backend import Candidates, Floats, Ids, RowTable
from service.engine.types import DecodingOptions, Hypothesis

PAD, BOS, EOS = 0, 1, 2
VOCABULARY = 20
NUM_CANDIDATES = 8
MAX_TOKENS = 40
_GARBAGE = -1


@functools.lru_cache(maxsize=100_000)
def log_probs(source: tuple[int, ...], prefix: tuple[int, ...]) -> Floats:
    """Drawn afresh for each source and prefix; the end becomes likelier with each token."""
    seed = zlib.crc32(repr((source, prefix)).encode())
    logits = np.random.default_rng(seed).normal(scale=2.0, size=VOCABULARY)
    logits[EOS] += 0.3 * len(prefix) - 1.0
    return np.asarray(logits - np.log(np.exp(logits).sum()), np.float32)


def oracle(source: tuple[int, ...], options: DecodingOptions) -> list[Hypothesis]:
    """Beam search as `model/reference.py` has it: no cache, no batch, every continuation ranked."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for step in range(1, options.max_new_tokens + 1):
        continuations = [
            (score + float(log_prob), (*tokens, token))
            for score, tokens in live
            for token, log_prob in enumerate(log_probs(source, (BOS, *tokens)))
        ]
        continuations.sort(key=lambda item: -item[0])
        live = []
        for rank, (score, tokens) in enumerate(continuations[: 2 * options.beam_size]):
            if tokens[-1] == EOS:
                if rank < options.beam_size:
                    finished.append(Hypothesis(tokens[:-1], score / step**options.length_penalty, True))
            elif len(live) < options.beam_size:
                live.append((score, tokens))
        if len(finished) >= options.beam_size:
            break
    else:
        length = options.max_new_tokens**options.length_penalty
        finished += [Hypothesis(tokens, score / length, False) for score, tokens in live]
    finished.sort(key=lambda hypothesis: -hypothesis.score)
    return finished[: options.num_hypotheses]


class ToyTable:
    """Slots with source texts and rows of cached tokens, with whatever earlier ones left behind."""

    def __init__(self, backend: ToyBackend, max_rows: int, beam_size: int) -> None:
        self.backend = backend
        self.beam_size = beam_size
        self.sources: list[tuple[int, ...]] = [()] * (max_rows // beam_size)
        self.cache = np.full((max_rows, MAX_TOKENS), _GARBAGE)

    def encode(self, input_ids: Ids, lengths: Ids, slots: Sequence[int]) -> None:
        assert input_ids.shape[1] == lengths.max()
        self.backend.encoded.append(input_ids.shape)
        for ids, length, slot in zip(input_ids, lengths, slots, strict=True):
            assert (ids[length:] == PAD).all()
            self.sources[slot] = tuple(map(int, ids[:length]))

    def step(self, input_ids: Ids, write_indices: Ids) -> Candidates:
        assert len(input_ids) % self.beam_size == 0
        self.backend.before_step(len(input_ids))
        width = 1 if self.beam_size == 1 else 2 * self.beam_size
        ids, best = np.empty((len(input_ids), width), np.int64), np.empty((len(input_ids), width), np.float32)
        for row, (token, index) in enumerate(zip(input_ids, write_indices, strict=True)):
            self.cache[row, index] = token
            source = self.sources[row // self.beam_size]
            scores = log_probs(source, tuple(map(int, self.cache[row, : index + 1])))
            ids[row] = np.argsort(-scores, kind="stable")[:width]
            best[row] = scores[ids[row]]
        return Candidates(ids, best)

    def copy_cache(self, copies: Sequence[tuple[int, int]], length: int) -> None:
        for source, destination in copies:
            assert source // self.beam_size == destination // self.beam_size
            self._copy_row(self, source, destination, length)

    def move_slot(self, source: int, destination: int, length: int) -> None:
        self.take_slot(self, source, destination, length)

    def take_slot(self, other: RowTable, source: int, destination: int, length: int) -> None:
        assert isinstance(other, ToyTable)
        assert other.beam_size == self.beam_size
        self.sources[destination] = other.sources[source]
        for beam in range(self.beam_size):
            self._copy_row(other, source * self.beam_size + beam, destination * self.beam_size + beam, length)

    def release(self) -> None:
        self.cache = self.cache[:0]  # whoever uses it all the same gets an IndexError

    def _copy_row(self, other: ToyTable, source: int, destination: int, length: int) -> None:
        self.cache[destination, :length] = other.cache[source, :length]
        self.cache[destination, length:] = _GARBAGE


class ToyBackend:
    """After `hold`, every step waits for `allow`; `on_step` is called with the number of each step."""

    eos_id, bos_id, pad_id = EOS, BOS, PAD
    num_candidates = NUM_CANDIDATES
    max_source_tokens = MAX_TOKENS
    max_target_tokens = MAX_TOKENS

    def __init__(self, on_step: Callable[[int], None] = lambda _: None) -> None:
        self.on_step = on_step
        self.encoded: list[tuple[int, ...]] = []
        self.rows_of_steps: list[int] = []
        self._lock = threading.Condition()
        self._permits: float = float("inf")

    def new_table(self, max_rows: int, beam_size: int) -> ToyTable:
        return ToyTable(self, max_rows, beam_size)

    def hold(self) -> None:
        self._permits = 0

    def allow(self, num_steps: float = float("inf")) -> None:
        """Let so many more steps happen."""
        with self._lock:
            self._permits += num_steps
            self._lock.notify_all()

    def before_step(self, num_rows: int) -> None:
        with self._lock:
            self.rows_of_steps.append(num_rows)
            number = len(self.rows_of_steps)
            self._lock.notify_all()
            assert self._lock.wait_for(lambda: self._permits > 0, timeout=60)
            self._permits -= 1
        self.on_step(number)

    def wait_for_step(self, number: int) -> None:
        """Until step `number` (from 1) stands at its beginning."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.rows_of_steps) >= number, timeout=60)
