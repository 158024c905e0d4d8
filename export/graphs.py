"""The graphs of each architecture: inputs, outputs and the PyTorch module of each.

To add an architecture, write one small module with a `forward` over a mapping of named tensors, list its inputs and
outputs with their named dimensions, and enter it in `DEFINITIONS`. Tracing, precisions and manifest follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from export.manifest import DType, TensorSpec
from export.ranking import rank, take
from model.config import Architecture, ModelConfig
from model.layers import KeyValue
from model.pooling import Pooling, pool
from model.transformer import Transformer

EXAMPLE_SIZES = {"batch": 4, "sources": 2, "target": 3, "source": 5, "capacity": 8, "reads": 6}
"""Sizes to trace with: all different, and none of them 1, which the tracer would take for a constant. `batch` is a
multiple of `sources`, because the beams of one source share it."""

TORCH_DTYPES: dict[DType, torch.dtype] = {
    "int64": torch.int64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True)
class GraphDefinition:
    """One graph to trace: `module` takes the tensors of `inputs` and returns those of `outputs`, both in order."""

    name: str
    module: nn.Module
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def example(self) -> tuple[Tensor, ...]:
        """Tensors of the right shapes to trace with: ones where numbers of things are meant, zeros elsewhere."""
        return tuple(
            torch.full(
                tuple(EXAMPLE_SIZES[size] if isinstance(size, str) else size for size in spec.shape),
                int(spec.name.endswith("lengths") or spec.name == "num_candidates"),
                dtype=TORCH_DTYPES[spec.dtype],
            )
            for spec in self.inputs
        )


def graph_definitions(
    model: Transformer,
    dtype: DType,
    pooling: Pooling = "mean",
    max_candidates: int = 16,
    suppressed: Sequence[int] = (),
) -> list[GraphDefinition]:
    """The graphs of `model`, whose weights and caches are of `dtype`.

    `pooling` is for an encoder; a decoder can be asked for up to `max_candidates` tokens a row, of which none is in
    `suppressed`.
    """
    ranking = Ranking(max_candidates, tuple(suppressed))
    return DEFINITIONS[model.config.architecture](model, dtype, pooling, ranking)


class EncoderGraph(nn.Module):
    """Source ids to the cross keys and values of every decoder layer: what a decoder needs of a source, made once."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        cross_cache = self.model.cross_cache(self.model.encode(input_ids, lengths))
        return tuple(tensor for key_value in cross_cache for tensor in key_value)


class EmbeddingGraph(nn.Module):
    """Token ids to one vector a token, and to one vector a text, in float32 whatever the weights are."""

    def __init__(self, model: Transformer, pooling: Pooling) -> None:
        super().__init__()
        self.model, self.pooling = model, pooling

    def forward(
        self, input_ids: Tensor, lengths: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        states = self.model.encode(input_ids, lengths, token_type_ids).float()
        return states, pool(states, lengths, self.pooling)


class Ranking(NamedTuple):
    """How a decoder's tokens are ranked: at most so many a row, and as if those suppressed had no probability."""

    max_candidates: int
    suppressed: tuple[int, ...] = ()


class DecoderGraph(nn.Module):
    """Advance every row by T tokens and give the logits after R of all B * T, with the best N of them ranked.

    Which ones is said by `read_indices`: mostly the last token of each row, or for a prompt that is scored all of them.
    Ranking inside the graph spares the server the whole (R,V) matrix: it reads (R,N), with N = 1 for greedy search.
    """

    def __init__(self, model: Transformer, input_names: Sequence[str], ranking: Ranking) -> None:
        super().__init__()
        self.model, self.input_names, self.ranking = model, tuple(input_names), ranking
        self.suppressed: Tensor
        self.register_buffer("suppressed", torch.tensor(ranking.suppressed, dtype=torch.int64), persistent=False)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.input_names, tensors, strict=True))
        num_layers = self.model.config.num_decoder_layers
        source_lengths = named.get("source_lengths")
        states, cache = self.model.decode(
            named["input_ids"],
            named["write_indices"],
            _pairs(named, "key_cache", "value_cache", num_layers),
            None if source_lengths is None else _pairs(named, "cross_key", "cross_value", num_layers),
            source_lengths,
        )
        logits = self.model.project(take(states, named["read_indices"])).float()  # (R,V)
        ranked = logits.index_fill(1, self.suppressed, -torch.inf) if self.ranking.suppressed else logits
        ids, log_probs = rank(ranked, named["num_candidates"], self.ranking.max_candidates)
        return (logits, ids, log_probs, *(tensor for key_value in cache for tensor in key_value))


def _pairs(named: Mapping[str, Tensor], key: str, value: str, num_layers: int) -> list[KeyValue]:
    return [KeyValue(named[f"{key}.{index}"], named[f"{value}.{index}"]) for index in range(num_layers)]


def _per_layer(config: ModelConfig, dtype: DType, rows: str, length: str, key: str, value: str) -> list[TensorSpec]:
    """The keys and values of every decoder layer, key before value, layer after layer."""
    return [
        TensorSpec(name=f"{name}.{index}", dtype=dtype, shape=(rows, length, config.cache_width))
        for index in range(config.num_decoder_layers)
        for name in (key, value)
    ]


def _ids(name: str, *shape: str) -> TensorSpec:
    return TensorSpec(name=name, dtype="int64", shape=shape)


def _encoder(model: Transformer, dtype: DType) -> GraphDefinition:
    return GraphDefinition(
        "encoder",
        EncoderGraph(model),
        (_ids("input_ids", "batch", "source"), _ids("lengths", "batch")),
        tuple(_per_layer(model.config, dtype, "batch", "source", "cross_key", "cross_value")),
    )


def _text_encoder(model: Transformer, pooling: Pooling) -> GraphDefinition:
    inputs = [_ids("input_ids", "batch", "source"), _ids("lengths", "batch")]
    if model.config.num_token_types > 1:
        inputs.append(_ids("token_type_ids", "batch", "source"))
    width = model.config.d_model
    outputs = (
        TensorSpec(name="token_embeddings", dtype="float32", shape=("batch", "source", width)),
        TensorSpec(name="embeddings", dtype="float32", shape=("batch", width)),
    )
    return GraphDefinition("encoder", EmbeddingGraph(model, pooling), tuple(inputs), outputs)


def _decoder(model: Transformer, dtype: DType, ranking: Ranking) -> GraphDefinition:
    config = model.config
    inputs = [_ids("input_ids", "batch", "target"), _ids("write_indices", "batch"), _ids("read_indices", "reads")]
    inputs += _per_layer(config, dtype, "batch", "capacity", "key_cache", "value_cache")
    if config.architecture == "encoder_decoder":
        inputs += _per_layer(config, dtype, "sources", "source", "cross_key", "cross_value")
        inputs.append(_ids("source_lengths", "sources"))
    inputs.append(TensorSpec(name="num_candidates", dtype="int64", shape=(1,)))
    outputs = [
        TensorSpec(name="logits", dtype="float32", shape=("reads", config.vocab_size)),
        TensorSpec(name="candidate_ids", dtype="int64", shape=("reads", "candidates")),
        TensorSpec(name="candidate_log_probs", dtype="float32", shape=("reads", "candidates")),
        *_per_layer(config, dtype, "batch", "capacity", "new_key_cache", "new_value_cache"),
    ]
    module = DecoderGraph(model, [spec.name for spec in inputs], ranking)
    return GraphDefinition("decoder", module, tuple(inputs), tuple(outputs))


DEFINITIONS: dict[Architecture, Callable[[Transformer, DType, Pooling, Ranking], list[GraphDefinition]]] = {
    "encoder_decoder": lambda model, dtype, _, ranking: [_encoder(model, dtype), _decoder(model, dtype, ranking)],
    "encoder": lambda model, _, pooling, __: [_text_encoder(model, pooling)],
    "decoder": lambda model, dtype, _, ranking: [_decoder(model, dtype, ranking)],
}
