"""The parts of a transformer: embedding, attention, feed-forward, and the two kinds of layer they make.

Read after `model.operators` and `model.positions`, and before `model.transformer`. Section numbers are those of Vaswani
et al. 2017, https://arxiv.org/abs/1706.03762.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.operators import attend, rotate, update_cache
from model.positions import Place, sinusoids


class KeyValue(NamedTuple):
    """One layer's keys and values, each (B,C,KV*D): a cache of C positions, or a source of S."""

    key: Tensor
    value: Tensor


class EmbeddingSum(nn.Module):
    """What makes the first layer's input of token embeddings: scale, position, token type, norm and dropout.

    BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) adds the token's type and a norm over the sum.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.adds_positions = config.positions in ("learned", "sinusoidal")  # others enter in every layer
        self.position: Tensor
        if config.positions == "learned":
            self.position = nn.Parameter(torch.empty(config.max_seq_len, config.d_model))
        elif config.positions == "sinusoidal":
            # Not trained and cheap to make again, so no checkpoint carries it.
            table = sinusoids(config.max_seq_len, config.d_model, config.sinusoids, config.position_offset)
            self.register_buffer("position", table, persistent=False)
        if config.num_token_types:
            self.token_type = nn.Parameter(torch.empty(config.num_token_types, config.d_model))
        self.norm = make_norm(config, config.d_model) if config.embedding_norm else nn.Identity()
        self.num_token_types = config.num_token_types
        self.dropout = nn.Dropout(config.dropout)

    def add(self, tokens: Tensor, positions: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """`tokens` (B,T,E) at `positions` (B,T), of the types `token_type_ids` (B,T), -> (B,T,E).

        Types are for models that have some, which take None for a text that is all of type 0.
        """
        states = tokens * self.scale
        if self.adds_positions:
            states = states + nn.functional.embedding(positions, self.position)
        if self.num_token_types:
            states = states + (self.token_type[0] if token_type_ids is None else self.token_type[token_type_ids])
        elif token_type_ids is not None:
            raise ValueError("token types are given to a model that has none")
        embedded: Tensor = self.dropout(self.norm(states))
        return embedded


class Embedding(EmbeddingSum):
    """Token embedding plus position, sections 3.4 and 3.5: (B,T) ids at `positions` (B,T) -> (B,T,E)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config)
        self.token = nn.Embedding(vocab_size, config.d_model)

    def forward(self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """`token_type_ids` as in `add`."""
        return self.add(self.token(input_ids), positions, token_type_ids)


class RMSNorm(nn.RMSNorm):
    """Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467; in its weight's type, also where autocast is on."""

    def forward(self, states: Tensor) -> Tensor:
        return super().forward(states.to(self.weight.dtype))


def make_norm(config: ModelConfig, width: int) -> nn.Module:
    """The kind of norm that the configuration asks for, over `width` channels."""
    kind = RMSNorm if config.norm == "rms" else nn.LayerNorm
    return kind(width, eps=config.norm_eps)


class SelfAttention(nn.Module):
    """Multi-head self-attention, section 3.2.2, with one fused query-key-value projection."""

    def __init__(self, config: ModelConfig, is_causal: bool) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads or config.num_heads
        self.is_causal, self.scale = is_causal, config.attention_scale or None
        self.widths = (self.num_heads * config.head_size, config.cache_width, config.cache_width)
        self.query_key_value = nn.Linear(config.d_model, sum(self.widths), bias=config.query_key_value_bias)
        self.output = nn.Linear(self.widths[0], config.d_model, bias=config.attention_output_bias)
        self.has_head_norm = config.query_key_norm
        if config.query_key_norm:
            self.query_norm = make_norm(config, config.head_size)
            self.key_norm = make_norm(config, config.head_size)

    def forward(self, states: Tensor, place: Place, lengths: Tensor | None) -> Tensor:
        """`states` (B,T,E) attend to each other; `lengths` (B) counts the real positions, None: all T."""
        query, key, value = self.project(states, place)
        attended: Tensor = self.output(self._attend(query, KeyValue(key, value), lengths, place))
        return attended

    def step(
        self, states: Tensor, place: Place, cache: KeyValue, write_indices: Tensor, lengths: Tensor
    ) -> tuple[Tensor, KeyValue]:
        """`states` (B,T,E) enter the cache at `write_indices` (B) and attend to all that it then holds.

        That is `lengths` (B) positions: write_indices[b] + T.
        """
        query, key, value = self.project(states, place)
        cache = KeyValue(update_cache(cache.key, key, write_indices), update_cache(cache.value, value, write_indices))
        return self.output(self._attend(query, cache, lengths, place)), cache

    def project(self, states: Tensor, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        """`states` (B,T,E) -> queries (B,T,H*D), keys and values (B,T,KV*D); keys are kept as they are rotated here."""
        query, key, value = self.query_key_value(states).split(self.widths, dim=-1)
        if self.has_head_norm:
            query = self.query_norm(query.unflatten(-1, (self.num_heads, -1))).flatten(2).to(value.dtype)  # over D
            key = self.key_norm(key.unflatten(-1, (self.num_kv_heads, -1))).flatten(2).to(value.dtype)
        if place.rotation is not None:
            query = rotate(query, *place.rotation, self.num_heads)
            key = rotate(key, *place.rotation, self.num_kv_heads)
        return query, key, value

    def _attend(self, query: Tensor, source: KeyValue, lengths: Tensor | None, place: Place) -> Tensor:
        heads = self.num_heads, self.num_kv_heads
        attended: Tensor = attend(query, *source, lengths, *heads, self.is_causal, place.bias, self.scale)
        return attended


class CrossAttention(nn.Module):
    """Multi-head attention from the decoder to the encoder's output, section 3.2.3."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads or config.num_heads
        self.scale = config.attention_scale or None
        width = config.num_heads * config.head_size
        self.query = nn.Linear(config.d_model, width, bias=config.query_key_value_bias)
        self.key_value = nn.Linear(config.d_model, 2 * config.cache_width, bias=config.query_key_value_bias)
        self.output = nn.Linear(width, config.d_model, bias=config.attention_output_bias)

    def keys_and_values(self, memory: Tensor) -> KeyValue:
        """`memory` (B,S,E) -> keys and values (B,S,KV*D): made once a source, read at every step."""
        return KeyValue(*self.key_value(memory).chunk(2, dim=-1))

    def forward(self, states: Tensor, source: KeyValue, source_lengths: Tensor) -> Tensor:
        """`states` (B,T,E) attend to the first `source_lengths` (B/K) positions of `source` (B/K,S,KV*D).

        K neighbouring rows, the beams of one source, share it; mostly K is 1.
        """
        query = self.query(states)
        heads = self.num_heads, self.num_kv_heads
        states = attend(query, *source, source_lengths, *heads, is_causal=False, scale=self.scale)
        attended: Tensor = self.output(states)
        return attended


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "silu": nn.SiLU,
}
"""Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415, define GELU, its tanh approximation and SiLU."""


class FeedForward(nn.Module):
    """Two position-wise linear maps with an activation between them, section 3.3."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.expand = nn.Linear(config.d_model, config.d_ff, bias=config.feed_forward_bias)
        self.activation = ACTIVATIONS[config.activation]()
        self.contract = nn.Linear(config.d_ff, config.d_model, bias=config.feed_forward_bias)

    def forward(self, states: Tensor) -> Tensor:
        contracted: Tensor = self.contract(self.activation(self.expand(states)))
        return contracted


class GatedFeedForward(FeedForward):
    """Feed-forward whose expansion is multiplied by an activated gate: Shazeer 2020, https://arxiv.org/abs/2002.05202.

    Gate and expansion are two projections: one for both saves nothing in float32, and in int8 costs a tenth to split.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.feed_forward_bias)

    def forward(self, states: Tensor) -> Tensor:
        contracted: Tensor = self.contract(self.activation(self.gate(states)) * self.expand(states))
        return contracted


def make_feed_forward(config: ModelConfig) -> FeedForward:
    """The kind of feed-forward that the configuration asks for."""
    return GatedFeedForward(config) if config.gated_feed_forward else FeedForward(config)


class Residual(nn.Module):
    """x + f(x) with its norm and dropout: `enter` goes before the sub-layer, `leave` after it.

    Post-norm is section 3.1, LayerNorm(x + f(x)); pre-norm is x + f(LayerNorm(x)), Xiong et al. 2020,
    https://arxiv.org/abs/2002.04745.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(config, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.is_pre = config.norm_order == "pre"

    def enter(self, states: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return self.norm(states) if self.is_pre else states

    def leave(self, states: Tensor, change: Tensor) -> Tensor:
        """The stream after the sub-layer, whose output is `change`."""
        states = states + self.dropout(change)
        return states if self.is_pre else self.norm(states)


class EncoderLayer(nn.Module):
    """Self-attention over the whole sequence, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, is_causal=False)
        self.self_attention_residual = Residual(config)
        self.feed_forward = make_feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, states: Tensor, place: Place, lengths: Tensor) -> Tensor:
        """`states` (B,S,E), of which `lengths` (B) are real."""
        change = self.self_attention(self.self_attention_residual.enter(states), place, lengths)
        states = self.self_attention_residual.leave(states, change)
        change = self.feed_forward(self.feed_forward_residual.enter(states))
        return self.feed_forward_residual.leave(states, change)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention where there is a source, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, is_causal=True)
        self.self_attention_residual = Residual(config)
        if config.architecture == "encoder_decoder":
            self.cross_attention = CrossAttention(config)
            self.cross_attention_residual = Residual(config)
        self.feed_forward = make_feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, states: Tensor, place: Place, source: KeyValue | None, source_lengths: Tensor | None) -> Tensor:
        """All positions at once, without a cache: training. Padding stands on the right, so causality hides it."""
        change = self.self_attention(self.self_attention_residual.enter(states), place, lengths=None)
        states = self.self_attention_residual.leave(states, change)
        return self._rest(states, source, source_lengths)

    def step(
        self,
        states: Tensor,
        place: Place,
        cache: KeyValue,
        write_indices: Tensor,
        lengths: Tensor,
        source: KeyValue | None,
        source_lengths: Tensor | None,
    ) -> tuple[Tensor, KeyValue]:
        """The next T positions of each row, after what the cache holds: prefill and decoding."""
        entering = self.self_attention_residual.enter(states)
        change, cache = self.self_attention.step(entering, place, cache, write_indices, lengths)
        states = self.self_attention_residual.leave(states, change)
        return self._rest(states, source, source_lengths), cache

    def _rest(self, states: Tensor, source: KeyValue | None, source_lengths: Tensor | None) -> Tensor:
        if source is not None and source_lengths is not None:
            change = self.cross_attention(self.cross_attention_residual.enter(states), source, source_lengths)
            states = self.cross_attention_residual.leave(states, change)
        change = self.feed_forward(self.feed_forward_residual.enter(states))
        return self.feed_forward_residual.leave(states, change)
