"""What is compared: an encoder from texts to unit vectors, ours or a peer's, behind one small interface."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.decoding import Threads
from bench.embed_models import PreparedEncoder
from export.bundle import load_bundle
from model.embedding import input_ids
from model.tokenizer import Tokenizer
from service.engine.encode.embedding import EmbeddingRequest
from service.engine.encode.embedding_engine import EmbeddingEngine
from service.engine.encode.embedding_line import EmbeddingLimits
from service.runtime.encoder import OnnxEncoderBackend

Vectors = NDArray[np.float32]

_MOST_TEXTS, _MOST_TOKENS = 8192, 1 << 20

WINDOWS = (256, _MOST_TEXTS)
"""Texts that are tokenised at a time, while earlier ones are computed; that many are sorted by length."""

_BATCH_TOKENS = 512
"""The server's default on a processor, see service.heads.embed.load."""


class TextEncoder(Protocol):
    """One side of the comparison, loaded. `setting` says how it shares threads and cuts batches."""

    name: str
    precision: str
    setting: str

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors (N,E) in the order of `texts`: tokenisation, batches, pooling and norm are all part of it."""

    def close(self) -> None:
        """Free threads and memory."""


class EngineEncoder:
    """Our engine in process, with as many loops of one thread as there are threads, as the server has them."""

    name = "polyhead"

    def __init__(self, prepared: PreparedEncoder, precision: str, num_threads: int, window: int = WINDOWS[0]) -> None:
        self.precision, self.threads = precision, Threads(num_threads, 1)
        self.setting = f"{self.threads}, {window} texts"
        self._window = window
        self._tokenizer = Tokenizer.load(prepared.bundle / "tokenizer.json")
        self._limit = prepared.max_input_tokens
        limits = EmbeddingLimits(_BATCH_TOKENS, _MOST_TEXTS, _MOST_TOKENS)
        backend = OnnxEncoderBackend(load_bundle(prepared.bundle), precision, num_threads=1)
        self.engine = EmbeddingEngine(backend, limits, num_loops=num_threads)
        self.engine.start()
        self._events = asyncio.new_event_loop()

    def requests(self, texts: Sequence[str]) -> list[EmbeddingRequest]:
        """The texts as the engine takes them."""
        return [EmbeddingRequest(tuple(ids)) for ids in input_ids(self._tokenizer, texts, self._limit)]

    def embed(self, texts: Sequence[str]) -> Vectors:
        return unit(np.stack(self._events.run_until_complete(self._embed(texts))))

    async def _embed(self, texts: Sequence[str]) -> list[Vectors]:
        """Not normalised; the engine works on what came first while the rest is tokenised, as it does for a server."""
        calls = []
        for start in range(0, len(texts), self._window):
            requests = await asyncio.to_thread(self.requests, texts[start : start + self._window])
            calls.append(asyncio.create_task(self.engine.run(requests)))
        return [result.values for results in await asyncio.gather(*calls) for result in results]

    def close(self) -> None:
        self.engine.close()
        self._events.close()


def unit(vectors: Vectors) -> Vectors:
    """Rows of length one."""
    rows: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return rows
