"""transformers, sentence-transformers and onnxruntime-genai as sides, all threads on one batch."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sentence_transformers
import torch
import transformers
from transformers.generation.streamers import BaseStreamer

from bench.embed_models import PreparedEncoder
from bench.side import BenchError, Output, Text, Vectors

Cache = Literal["dynamic", "static"]
CACHES: tuple[Cache, ...] = ("dynamic", "static")

BATCH_SIZES = (16, 32, 64)
"""Texts of a batch of sentence-transformers that are tried; 32 is its default. It sorts by length itself."""


class _OneBatch:
    """A generator that takes prompts of one length only."""

    name, precision = "", "fp32"

    def prepare(self, items: Sequence[Text]) -> Callable[[], list[Output]]:
        if len({(len(item.token_ids), item.max_new_tokens) for item in items}) > 1:
            raise BenchError(f"{self.name} is compared on prompts of one length only")
        return lambda: self._generate(np.array([item.token_ids for item in items]), items[0].max_new_tokens)

    async def ask(self, items: Sequence[Text]) -> list[Output]:
        return await asyncio.to_thread(self.prepare(items))

    def _generate(self, ids: np.ndarray[Any, np.dtype[Any]], num_new: int) -> list[Output]:
        raise NotImplementedError

    def close(self) -> None:
        del self._model

    _model: Any


class TransformersGenerator(_OneBatch):
    """`generate` of transformers on PyTorch in float32."""

    name = "transformers"

    def __init__(self, folder: Path, num_threads: int, cache: Cache) -> None:
        self.setting = f"1x{num_threads}, {cache} cache"
        self._cache = cache
        torch.set_num_threads(num_threads)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model = model.eval()
        self._pad_id = self._model.config.eos_token_id
        self._model.generation_config.eos_token_id = None  # a text ends at its length only

    def _generate(self, ids: np.ndarray[Any, np.dtype[Any]], num_new: int) -> list[Output]:
        input_ids = torch.from_numpy(ids)
        note = _Times()
        with torch.inference_mode():
            found = self._model.generate(
                input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_new_tokens=num_new,
                do_sample=False,
                pad_token_id=self._pad_id,
                cache_implementation=self._cache,
                streamer=note,
            )
        times = tuple(note.times[1:])  # the first are the prompts
        return [Output(tuple(row), times) for row in found[:, input_ids.shape[1] :].tolist()]


class _Times(BaseStreamer):  # type: ignore[misc,unused-ignore]
    """When `generate` had what it gave out."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:  # only that it came counts
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is held back."""


class GenaiGenerator(_OneBatch):
    """The generator loop of onnxruntime-genai."""

    name = "onnxruntime-genai"

    def __init__(self, model: Path, precision: str, num_threads: int) -> None:
        self.precision, self.setting = precision, f"1x{num_threads}"
        self._genai = importlib.import_module("onnxruntime_genai")
        config = self._genai.Config(str(model))
        threads = {"intra_op_num_threads": num_threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self._model = self._genai.Model(config)

    def _generate(self, ids: np.ndarray[Any, np.dtype[Any]], num_new: int) -> list[Output]:
        params = self._genai.GeneratorParams(self._model)
        params.set_search_options(do_sample=False, batch_size=len(ids), max_length=ids.shape[1] + num_new)
        generator = self._genai.Generator(self._model, params)
        generator.append_tokens(ids.astype(np.int32))
        steps, times = [], []
        for _ in range(num_new):
            generator.generate_next_token()
            steps.append(np.array(generator.get_next_tokens()))
            times.append(time.perf_counter())
        return [Output(tuple(row), tuple(times)) for row in np.stack(steps, axis=1).tolist()]


class SentenceTransformersEncoder:
    """`encode` of sentence-transformers, on PyTorch or ONNX Runtime."""

    def __init__(
        self,
        prepared: PreparedEncoder,
        precision: str,
        batch_size: int,
        num_threads: int,
        backend: Literal["torch", "onnx"] = "torch",
    ) -> None:
        self.name = f"sentence-transformers {backend}"
        self.precision, self.setting = precision, f"1x{num_threads}, {batch_size} texts"
        self._batch_size = batch_size
        torch.set_num_threads(num_threads)
        options: dict[str, Any] = {"dtype": torch.bfloat16} if precision == "bf16" else {}
        self._model = sentence_transformers.SentenceTransformer(
            str(prepared.folder), device="cpu", backend=backend, model_kwargs=options
        )

    def prepare(self, items: Sequence[str]) -> Callable[[], Vectors]:
        return lambda: self._embed(items)

    async def ask(self, items: Sequence[str]) -> Vectors:
        return await asyncio.to_thread(self._embed, items)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        vectors = self._model.encode(
            list(texts),
            batch_size=self._batch_size,
            normalize_embeddings=True,
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        return np.asarray(vectors.float().cpu().numpy())

    def close(self) -> None:
        del self._model
