"""`generate` of transformers on PyTorch behind our interface."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from transformers.generation.streamers import BaseStreamer

from bench.generation import Output, Prompt
from bench.models import BenchError

Cache = Literal["dynamic", "static"]
CACHES: tuple[Cache, ...] = ("dynamic", "static")


class TransformersGenerator:
    """Its `generate` in float32, with all threads on one batch: it has no other way to use them."""

    name, precision = "transformers", "fp32"

    def __init__(self, folder: Path, num_threads: int, cache: Cache) -> None:
        self.setting = f"1x{num_threads}, {cache} cache"
        self._cache = cache
        torch.set_num_threads(num_threads)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model = model.eval()
        self._pad_id = self._model.config.eos_token_id
        self._model.generation_config.eos_token_id = None  # a text ends at its length only

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        if len({(len(prompt.token_ids), prompt.max_new_tokens) for prompt in prompts}) > 1:
            raise BenchError("transformers is compared on prompts of one length only")
        input_ids = torch.tensor([prompt.token_ids for prompt in prompts])
        note = _Times()
        with torch.inference_mode():
            found = self._model.generate(
                input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_new_tokens=prompts[0].max_new_tokens,
                do_sample=False,
                pad_token_id=self._pad_id,
                cache_implementation=self._cache,
                streamer=note,
            )
        times = tuple(note.times[1:])  # the first are the prompts
        return [Output(tuple(row), times) for row in found[:, input_ids.shape[1] :].tolist()]

    def close(self) -> None:
        del self._model


class _Times(BaseStreamer):  # type: ignore[misc,unused-ignore]
    """When `generate` had what it gave out."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:  # only that it came counts
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is held back."""
