"""CTranslate2's Encoder behind our interface: batches of like length, mean pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import ctranslate2
import numpy as np

from bench.decoding import Threads
from bench.embed_models import PreparedEncoder
from bench.embedding import WINDOWS, Vectors, unit
from bench.models import BenchError
from bench.peers.ctranslate2_decoder import COMPUTE_TYPES
from model.embedding import input_ids
from model.tokenizer import Tokenizer

BATCH_TOKENS = (256, 512, 1024)
"""Padded tokens of a batch that are tried, since it leaves the choice to its caller."""


class Ctranslate2Encoder:
    """`threads.workers` batches at a time, of up to `batch_tokens` padded tokens, taken from texts sorted by length.

    `window` texts are tokenised and sorted at a time, while earlier ones are computed.
    """

    name = "ctranslate2"

    def __init__(
        self,
        prepared: PreparedEncoder,
        precision: str,
        threads: Threads,
        batch_tokens: int,
        window: int = WINDOWS[-1],
    ) -> None:
        if prepared.checkpoint.metadata["embedding"]["pooling"] != "mean":
            raise BenchError("CTranslate2 is compared on models with mean pooling only")
        self.precision, self.setting = precision, f"{threads}, {batch_tokens} tokens of {window} texts"
        self._batch_tokens, self._window, self._limit = batch_tokens, window, prepared.max_input_tokens
        self._tokenizer = Tokenizer.load(prepared.bundle / "tokenizer.json")
        self._encoder = ctranslate2.Encoder(
            str(prepared.ctranslate2),
            device="cpu",
            compute_type=COMPUTE_TYPES[precision],
            inter_threads=threads.workers,
            intra_threads=threads.each,
        )
        self._callers = ThreadPoolExecutor(threads.workers)

    def embed(self, texts: Sequence[str]) -> Vectors:
        pending: list[tuple[list[int], Future[Vectors]]] = []
        for start in range(0, len(texts), self._window):
            rows = input_ids(self._tokenizer, texts[start : start + self._window], self._limit)
            for group in self._groups(rows):
                call = self._callers.submit(self._pool, [rows[index] for index in group])
                pending.append(([start + index for index in group], call))
        vectors = np.empty((len(texts), pending[0][1].result().shape[1]), np.float32)
        for group, call in pending:
            vectors[group] = call.result()
        return unit(vectors)

    def _groups(self, rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of rows of like length, longest first."""
        group: list[int] = []
        for index in sorted(range(len(rows)), key=lambda index: -len(rows[index])):
            if group and len(rows[group[0]]) * (len(group) + 1) > self._batch_tokens:
                yield group
                group = []
            group.append(index)
        yield group

    def _pool(self, rows: list[list[int]]) -> Vectors:
        states = np.asarray(self._encoder.forward_batch(rows).last_hidden_state)  # (B,S,E)
        lengths = np.array([len(row) for row in rows])
        shares = (np.arange(states.shape[1]) < lengths[:, None]) / lengths[:, None].astype(np.float32)
        pooled: Vectors = (shares[:, None].astype(np.float32) @ states)[:, 0]
        return pooled

    def close(self) -> None:
        self._callers.shutdown()
        del self._encoder
