"""CTranslate2's Translator, Generator and Encoder as sides."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from bench.embed_models import PreparedEncoder
from bench.generate_models import spelling
from bench.ours import unit
from bench.side import BenchError, Output, Text, Threads, Vectors
from model.embedding import input_ids
from model.tokenizer import Tokenizer

NAME = "ctranslate2"

BATCH_TOKENS = (256, 512, 1024)
"""Padded tokens of a batch of its encoder that are tried, since it leaves the choice to its caller."""

_COMPUTE_TYPES = {"fp32": "float32", "int8": "int8"}
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


def _options(precision: str, threads: Threads) -> dict[str, Any]:
    return {
        "device": "cpu",
        "compute_type": _COMPUTE_TYPES[precision],
        "inter_threads": threads.workers,
        "intra_threads": threads.each,
    }


class Ctranslate2Decoder:
    """`threads.workers` parallel batches of `threads.each` threads each.

    A batch is cut so that every worker has a part of it. A single request is a call of its own, from a thread of its
    own: the library queues calls and does not join them.
    """

    name = NAME

    def __init__(self, model: Path, precision: str, threads: Threads) -> None:
        self.precision, self.threads, self.setting = precision, threads, str(threads)
        self._loaded = self._load(str(model), **_options(precision, threads))
        self._callers = ThreadPoolExecutor(_MAX_CALLERS, thread_name_prefix="caller")

    def _load(self, model: str, **options: Any) -> Any:
        return ctranslate2.Translator(model, **options)

    def prepare(self, items: Sequence[Text]) -> Callable[[], list[Output]]:
        batch = self._spelled(items)
        return lambda: self._decode(batch, items, math.ceil(len(items) / self.threads.workers))

    def run(self, items: Sequence[Text]) -> list[Output]:
        """`items` as one batch, on one of the workers."""
        return self._decode(self._spelled(items), items, 0)

    async def ask(self, items: Sequence[Text]) -> list[Output]:
        return await asyncio.get_running_loop().run_in_executor(self._callers, self.run, items)

    def _spelled(self, items: Sequence[Text]) -> list[list[str]]:
        """Token ids as the converted model spells them."""
        return [[str(token_id) for token_id in item.token_ids] for item in items]

    def _decode(self, batch: list[list[str]], items: Sequence[Text], max_batch_size: int) -> list[Output]:
        """One call of the library, with its defaults but for what defines the search, one for all items."""
        results = self._loaded.translate_batch(
            batch,
            max_batch_size=max_batch_size,
            beam_size=items[0].beam_size,
            length_penalty=1.0,
            max_decoding_length=max(item.max_new_tokens for item in items),
        )
        return [Output(tuple(map(int, result.hypotheses[0]))) for result in results]

    def close(self) -> None:
        self._callers.shutdown(cancel_futures=True)
        self._loaded.unload_model()


class Ctranslate2Generator(Ctranslate2Decoder):
    """Its callback tells when a token is there, and stops each continuation at its own length."""

    def _load(self, model: str, **options: Any) -> Any:
        return ctranslate2.Generator(model, **options)

    def _spelled(self, items: Sequence[Text]) -> list[list[str]]:
        return [[spelling(token_id) for token_id in item.token_ids] for item in items]

    def _decode(self, batch: list[list[str]], items: Sequence[Text], max_batch_size: int) -> list[Output]:
        token_ids: list[list[int]] = [[] for _ in items]
        times: list[list[float]] = [[] for _ in items]

        def note(result: Any) -> bool:
            own = token_ids[result.batch_id]
            own.append(result.token_id)
            times[result.batch_id].append(time.perf_counter())
            return bool(len(own) >= items[result.batch_id].max_new_tokens)

        self._loaded.generate_batch(
            batch,
            max_batch_size=max_batch_size,
            max_length=max(item.max_new_tokens for item in items),
            include_prompt_in_result=False,  # so that prompts are read at once
            callback=note,
        )
        return [Output(tuple(ids), tuple(own)) for ids, own in zip(token_ids, times, strict=True)]


class Ctranslate2Encoder:
    """`threads.workers` batches at a time, of up to `batch_tokens` padded tokens, taken from texts sorted by length.

    `window` texts are tokenized and sorted at a time, while earlier ones are computed.
    """

    name = NAME

    def __init__(
        self, prepared: PreparedEncoder, precision: str, threads: Threads, batch_tokens: int, window: int
    ) -> None:
        if prepared.checkpoint.metadata["embedding"]["pooling"] != "mean":
            raise BenchError("CTranslate2 is compared on models with mean pooling only")
        self.precision, self.setting = precision, f"{threads}, {batch_tokens} tokens of {window} texts"
        self._batch_tokens, self._window, self._limit = batch_tokens, window, prepared.max_input_tokens
        self._tokenizer = Tokenizer.load(prepared.bundle / "tokenizer.json")
        self._encoder = ctranslate2.Encoder(str(prepared.ctranslate2), **_options(precision, threads))
        self._callers = ThreadPoolExecutor(threads.workers)

    def prepare(self, items: Sequence[str]) -> Callable[[], Vectors]:
        return lambda: self._embed(items)

    async def ask(self, items: Sequence[str]) -> Vectors:
        return await asyncio.to_thread(self._embed, items)

    def _embed(self, texts: Sequence[str]) -> Vectors:
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
