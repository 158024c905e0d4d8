"""sentence-transformers behind our interface, on PyTorch and on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import sentence_transformers
import torch

from bench.embed_models import PreparedEncoder
from bench.embedding import Vectors

BATCH_SIZES = (16, 32, 64)
"""Texts of a batch that are tried; 32 is its default. It sorts by length itself."""


class SentenceTransformersEncoder:
    """Its `encode`, with all threads on one batch: it has no other way to use them."""

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

    def embed(self, texts: Sequence[str]) -> Vectors:
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
