"""Stand-ins for embedding: a tokenizer with special tokens of its own, and an engine whose vectors can be foretold."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers.processors import TemplateProcessing

from model.tokenizer import BOS, EOS, Tokenizer
from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult, EncoderBackend
from service.engine.encode.embedding_engine import EmbeddingEngine
from service.heads.embed.model import EmbeddingModel
from tests.service.fakes import StandIn, tiny_tokenizer

WIDTH = 8
MAX_TOKENS = 16
PROMPTS = {"query": "a b ", "document": "the "}


@functools.cache
def embed_tokenizer() -> Tokenizer:
    """Puts <s> before and </s> after each text."""
    plain = tiny_tokenizer()
    backend = tokenizers.Tokenizer.from_str(plain._backend.to_str())
    backend.post_processor = TemplateProcessing(
        single=f"{BOS} $A {EOS}", special_tokens=[(token, plain.token_id(token)) for token in (BOS, EOS)]
    )
    return Tokenizer(backend)


@functools.cache
def _table() -> NDArray[np.float32]:
    shape = (embed_tokenizer().vocab_size, WIDTH)
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def token_vectors(ids: Sequence[int]) -> NDArray[np.float32]:
    """(S, E), what the stand-in's model computes."""
    rows: NDArray[np.float32] = _table()[list(ids)] * 3
    return rows


def pooled(ids: Sequence[int]) -> NDArray[np.float32]:
    mean: NDArray[np.float32] = token_vectors(ids).mean(axis=0)
    return mean


class FakeEmbeddingEngine(StandIn[EmbeddingRequest, EmbeddingResult]):
    """A vector for each token out of a fixed table; pooled by their mean."""

    def __init__(self) -> None:
        backend = SimpleNamespace(
            pad_id=0,
            vocab_size=embed_tokenizer().vocab_size,
            num_token_types=0,
            max_input_tokens=MAX_TOKENS,
            width=WIDTH,
        )
        super().__init__(EmbeddingEngine(cast(EncoderBackend, backend)))

    def _result(self, request: EmbeddingRequest, seconds: float) -> EmbeddingResult:
        self.steps += 1
        values = token_vectors(request.input_ids) if request.wants_tokens else pooled(request.input_ids)
        return EmbeddingResult(values, 0.002, 0.003, request.num_tokens)


def fake_embedder(
    engine: FakeEmbeddingEngine,
    *,
    name: str = "mini",
    prompts: Mapping[str, str] = PROMPTS,
    default_prompt_name: str | None = None,
) -> EmbeddingModel:
    return EmbeddingModel(
        name=name,
        tokenizer=embed_tokenizer(),
        engine=engine,
        precision="fp32",
        device="cpu",
        info={"sha": "1" * 64},
        max_input_tokens=MAX_TOKENS,
        dimensions=WIDTH,
        pooling="mean",
        normalize=True,
        num_special_tokens=2,
        prompts=prompts,
        default_prompt_name=default_prompt_name,
    )
