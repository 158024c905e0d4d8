"""A stand-in that shows attention: maps that can be foretold, of models that translate, embed and generate."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from export.heads import Alignment
from model.config import ModelConfig
from service.engine.core.observer import Observer
from service.engine.encode.attention import AttentionRequest, AttentionResult, Kind, Maps
from service.engine.encode.attention_engine import AttentionBackend, AttentionEngine
from service.heads.attend.support import AttentionSupport
from tests.service.embed_fakes import embed_tokenizer
from tests.service.fakes import StandIn
from tests.service.generation_fakes import fallback_tokenizer

NUM_HEADS = 2
MAX_TOKENS = 128
NUM_LAYERS = {"encoder": 3, "decoder": 2, "cross": 2}


def vocab_size_of(architecture: str) -> int:
    """That of the tokenizer that the model of this architecture has among the stand-ins."""
    return (fallback_tokenizer() if architecture == "decoder" else embed_tokenizer()).vocab_size


def config(architecture: str, **changes: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "architecture": architecture,
        "vocab_size": vocab_size_of(architecture),
        "d_model": 8,
        "d_ff": 8,
        "num_heads": NUM_HEADS,
        "num_encoder_layers": 0 if architecture == "decoder" else NUM_LAYERS["encoder"],
        "num_decoder_layers": 0 if architecture == "encoder" else NUM_LAYERS["decoder"],
        "max_seq_len": 64,
    }
    return ModelConfig(**values | changes)


def heads_of(kind: Kind, layer: int, queries: tuple[int, ...], keys: tuple[int, ...]) -> NDArray[np.float32]:
    """(H,Q,K) out of the tokens alone; causal for the decoder."""
    seed = zlib.crc32(repr((kind, layer, queries, keys)).encode())
    scores = np.random.default_rng(seed).normal(size=(NUM_HEADS, len(queries), len(keys)))
    weights = np.exp(scores)
    if kind == "decoder":
        weights *= np.tri(len(queries))
    maps: NDArray[np.float32] = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    return maps


def maps_of(request: AttentionRequest, architecture: str) -> dict[Kind, dict[int, NDArray[np.float32]]]:
    source, target = request.source_ids or (), request.target_ids or ()
    axes: dict[Kind, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    if architecture != "decoder":
        axes["encoder"] = (source, source)
    if architecture != "encoder":
        axes["decoder"] = (target, target)
    if architecture == "encoder_decoder":
        axes["cross"] = (target, source)
    return {
        kind: {
            layer: heads_of(kind, layer, *pair)
            for layer in range(NUM_LAYERS[kind])
            if request.layers is None or layer in request.layers
        }
        for kind, pair in axes.items()
    }


class FakeAttentionEngine(StandIn[AttentionRequest, AttentionResult]):
    """`planted` replaces the maps of every layer and head of the cross-attention, by the number of the request."""

    def __init__(self, architecture: str, observer: Observer | None = None) -> None:
        backend = SimpleNamespace(
            vocab_size=vocab_size_of(architecture),
            num_token_types=0,
            reads_source=architecture != "decoder",
            reads_target=architecture != "encoder",
            max_source_tokens=MAX_TOKENS,
            max_target_tokens=MAX_TOKENS,
        )
        super().__init__(AttentionEngine(cast(AttentionBackend, backend)), observer)
        self.architecture = architecture
        self.planted: list[NDArray[np.float32]] = []
        self.spoil: NDArray[np.float32] | None = None

    def _result(self, request: AttentionRequest, seconds: float) -> AttentionResult:
        maps = maps_of(request, self.architecture)
        if self.planted:
            cross = np.stack([self.planted.pop(0)] * NUM_HEADS)
            maps["cross"] = dict.fromkeys(maps["cross"], cross)
        if self.spoil is not None:
            maps = {kind: dict.fromkeys(layers, self.spoil) for kind, layers in maps.items()}
        norms: Maps | None = None
        if request.wants_norms:
            norms = {kind: {layer: heads * 2 for layer, heads in layers.items()} for kind, layers in maps.items()}
        return AttentionResult(maps, norms, 0.002, 0.003, request.num_tokens)


def support(engine: FakeAttentionEngine, *, alignment: Alignment | None = None, **changes: Any) -> AttentionSupport:
    return AttentionSupport(engine=engine, config=config(engine.architecture, **changes), alignment=alignment)
