"""CTranslate2's Generator behind our interface."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2

from bench.decoding import Threads
from bench.generate_models import spelling
from bench.generation import BatchCall, Output, Prompt
from bench.peers.ctranslate2_decoder import COMPUTE_TYPES


class Ctranslate2Generator:
    """A generator of `threads.workers` parallel batches of `threads.each` threads each.

    What is given at once is cut so that every worker has a part of it. Its callback tells when a token is there, and
    stops each continuation at its own length, so that none runs as long as the longest of its batch.
    """

    name = "ctranslate2"

    def __init__(self, model: Path, precision: str, threads: Threads) -> None:
        self.precision, self.threads, self.setting = precision, threads, str(threads)
        self._generator = ctranslate2.Generator(
            str(model),
            device="cpu",
            compute_type=COMPUTE_TYPES[precision],
            inter_threads=threads.workers,
            intra_threads=threads.each,
        )

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        return self._generate(prompts, math.ceil(len(prompts) / self.threads.workers))

    def single_workers(self) -> list[BatchCall]:
        """A call for each worker, which runs a batch as one."""
        return [lambda prompts: self._generate(prompts, 0)] * self.threads.workers

    def _generate(self, prompts: Sequence[Prompt], max_batch_size: int) -> list[Output]:
        token_ids: list[list[int]] = [[] for _ in prompts]
        times: list[list[float]] = [[] for _ in prompts]

        def note(result: Any) -> bool:
            own = token_ids[result.batch_id]
            own.append(result.token_id)
            times[result.batch_id].append(time.perf_counter())
            return bool(len(own) >= prompts[result.batch_id].max_new_tokens)

        self._generator.generate_batch(
            [[spelling(token_id) for token_id in prompt.token_ids] for prompt in prompts],
            max_batch_size=max_batch_size,
            max_length=max(prompt.max_new_tokens for prompt in prompts),
            include_prompt_in_result=False,  # so that prompts are read at once
            callback=note,
        )
        return [Output(tuple(ids), tuple(own)) for ids, own in zip(token_ids, times, strict=True)]

    def close(self) -> None:
        self._generator.unload_model()
