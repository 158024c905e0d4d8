"""Many texts at once: each side embeds all of them, round after round in turn."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.decoding import thread_choices
from bench.embed_models import PreparedEncoder
from bench.embedding import WINDOWS, EngineEncoder, TextEncoder, Vectors, unit
from bench.models import PRECISIONS, BenchError
from bench.peers.ctranslate2_encoder import BATCH_TOKENS, Ctranslate2Encoder
from bench.peers.sentence_transformers_encoder import BATCH_SIZES, SentenceTransformersEncoder
from bench.rounds import Spread, time_in_turn

Choice = Callable[[], TextEncoder]

_TRIAL_TEXTS = 256
"""What the settings of a side are tried on, before the best of them is measured on all."""

_LEAST_COSINE = 0.9999
"""Of a float32 side to the first one; less means that it does not compute the same thing."""

_FAST_BF16 = {"avx512_bf16", "amx_bf16"}


@dataclass(frozen=True)
class SideResult:
    """What one side did with all texts, and how near its vectors are to those of float32."""

    name: str
    precision: str
    setting: str
    num_texts: int
    num_tokens: int
    spread: Spread
    smallest_cosine: float
    mean_cosine: float

    @property
    def texts_per_second(self) -> float:
        """The median over rounds."""
        return self.num_texts / self.spread.median

    def to_dict(self) -> dict[str, Any]:
        return {
            "side": self.name,
            "precision": self.precision,
            "setting": self.setting,
            "texts_per_second": round(self.texts_per_second, 1),
            "slowest_texts_per_second": round(self.num_texts / self.spread.slowest, 1),
            "fastest_texts_per_second": round(self.num_texts / self.spread.fastest, 1),
            "tokens_per_second": round(self.num_tokens / self.spread.median, 1),
            "smallest_cosine": round(self.smallest_cosine, 6),
            "mean_cosine": round(self.mean_cosine, 6),
        }


def measure_texts(
    prepared: PreparedEncoder,
    texts: Sequence[str],
    num_tokens: int,
    rounds: int,
    num_threads: int,
    cpu_flags: Sequence[str],
    left_out: list[str],
) -> list[SideResult]:
    """Every side that runs here, at its best setting; `left_out` is told of the others."""
    with ExitStack() as stack:
        sides = []
        for choices in _candidates(prepared, num_threads, cpu_flags, left_out):
            side = best_choice(choices, texts[:_TRIAL_TEXTS])
            stack.callback(side.close)
            sides.append(side)
        # Also warms: arenas grow on first use. Rounded to bf16, a vector has not quite length one.
        vectors = [unit(side.embed(texts)) for side in sides]
        cosines = [(vectors[0] * found).sum(axis=1) for found in vectors]
        _check(sides, cosines)
        jobs = {f"{side.name} {side.precision}": partial(side.embed, texts) for side in sides}
        spreads = list(time_in_turn(jobs, rounds).values())
    return [
        SideResult(
            side.name,
            side.precision,
            side.setting,
            len(texts),
            num_tokens,
            spread,
            float(found.min()),
            float(np.mean(found)),
        )
        for side, spread, found in zip(sides, spreads, cosines, strict=True)
    ]


def best_choice(
    choices: Sequence[Choice], texts: Sequence[str], clock: Callable[[], float] = time.perf_counter
) -> TextEncoder:
    """The side in the setting that embeds `texts` fastest; the others are closed."""
    best, least = None, float("inf")
    for choice in choices:
        side = choice()
        if len(choices) == 1:
            return side
        side.embed(texts)  # warm
        start = clock()
        side.embed(texts)
        seconds = clock() - start
        if seconds < least:
            best, side, least = side, best, seconds
        if side is not None:
            side.close()
    assert best is not None
    return best


def _check(sides: Sequence[TextEncoder], cosines: Sequence[Vectors]) -> None:
    for side, found in zip(sides, cosines, strict=True):
        if side.precision == "fp32" and found.min() < _LEAST_COSINE:
            raise BenchError(
                f"the vectors of {side.name} have a cosine of only {found.min():.4f} to those of {sides[0].name}, "
                "so they do not compute the same thing and their speeds cannot be compared"
            )


def _candidates(
    prepared: PreparedEncoder, num_threads: int, cpu_flags: Sequence[str], left_out: list[str]
) -> Iterator[list[Choice]]:
    """Each side in all the settings that are to be tried; the first is float32 as its makers compute it."""
    make = SentenceTransformersEncoder
    yield [partial(make, prepared, "fp32", size, num_threads) for size in BATCH_SIZES]
    if _FAST_BF16 & set(cpu_flags):
        yield [partial(make, prepared, "bf16", size, num_threads) for size in BATCH_SIZES]
    else:
        left_out.append("sentence-transformers torch bf16: this processor has no instructions for it")
    if importlib.util.find_spec("optimum") is None:
        left_out.append("sentence-transformers onnx: Optimum is not installed beside it")
    else:
        yield [partial(make, prepared, "fp32", size, num_threads, "onnx") for size in BATCH_SIZES]
    for precision in PRECISIONS:
        yield [
            partial(Ctranslate2Encoder, prepared, precision, threads, tokens, window)
            for threads in thread_choices(num_threads)
            for tokens in BATCH_TOKENS
            for window in WINDOWS
        ]
    for precision in PRECISIONS:
        yield [partial(EngineEncoder, prepared, precision, num_threads, window) for window in WINDOWS]
