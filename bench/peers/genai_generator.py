"""onnxruntime-genai behind our interface; the package is optional."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.generation import Output, Prompt
from bench.models import BenchError


class GenaiGenerator:
    """Its generator loop, with all threads on one batch."""

    name = "onnxruntime-genai"

    def __init__(self, model: Path, precision: str, num_threads: int) -> None:
        self.precision, self.setting = precision, f"1x{num_threads}"
        self._genai = importlib.import_module("onnxruntime_genai")
        config = self._genai.Config(str(model))
        threads = {"intra_op_num_threads": num_threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self._model = self._genai.Model(config)

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        if len({(len(prompt.token_ids), prompt.max_new_tokens) for prompt in prompts}) > 1:
            raise BenchError("onnxruntime-genai is compared on prompts of one length only")
        num_new = prompts[0].max_new_tokens
        params = self._genai.GeneratorParams(self._model)
        length = len(prompts[0].token_ids) + num_new
        params.set_search_options(do_sample=False, batch_size=len(prompts), max_length=length)
        generator = self._genai.Generator(self._model, params)
        generator.append_tokens(np.array([prompt.token_ids for prompt in prompts], np.int32))
        steps, times = [], []
        for _ in range(num_new):
            generator.generate_next_token()
            steps.append(np.array(generator.get_next_tokens()))
            times.append(time.perf_counter())
        return [Output(tuple(row), tuple(times)) for row in np.stack(steps, axis=1).tolist()]

    def close(self) -> None:
        del self._model
