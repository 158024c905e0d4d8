"""The parts of a transformer: positions, attention, feed-forward, and the two kinds of layer they make.

Read after `model.operators` and before `model.transformer`. Section numbers are those of Vaswani et al. 2017,
https://arxiv.org/abs/1706.03762.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.operators import attend, update_cache


class KeyValue(NamedTuple):
    """One layer's keys and values, each (B,C,H*D): a cache of C positions, or a source of S."""

    key: Tensor
    value: Tensor


class Embedding(nn.Module):
    """Token embedding plus position, sections 3.4 and 3.5: (B,T) ids at `positions` (B,T) -> (B,T,E).

    BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) adds the token's type, (B,T), and a norm over the sum.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.position: Tensor
        if config.positions == "learned":
            self.position = nn.Parameter(torch.empty(config.max_seq_len, config.d_model))
        else:
            # Not trained and cheap to make again, so no checkpoint carries it.
            self.register_buffer("position", sinusoids(config.max_seq_len, config.d_model), persistent=False)
        if config.num_token_types:
            self.token_type = nn.Parameter(torch.empty(config.num_token_types, config.d_model))
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.embedding_norm else nn.Identity()
        self.num_token_types = config.num_token_types
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """`token_type_ids` is for models with token types, which take None for a text that is all of type 0."""
        states: Tensor = self.token(input_ids) * self.scale + self.position[positions]
        if self.num_token_types:
            states = states + (self.token_type[0] if token_type_ids is None else self.token_type[token_type_ids])
        elif token_type_ids is not None:
            raise ValueError("token types are given to a model that has none")
        embedded: Tensor = self.dropout(self.norm(states))
        return embedded


def sinusoids(length: int, width: int) -> Tensor:
    """The fixed position table of section 3.5: (length, width), sines in even columns and cosines in odd ones."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates  # (length, width/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class SelfAttention(nn.Module):
    """Multi-head self-attention, section 3.2.2, with one fused query-key-value projection."""

    def __init__(self, config: ModelConfig, is_causal: bool) -> None:
        super().__init__()
        self.num_heads, self.is_causal = config.num_heads, is_causal
        self.query_key_value = nn.Linear(config.d_model, 3 * config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        """`states` (B,T,E) attend to each other; `lengths` (B) counts the real positions, None: all T."""
        query, key, value = self.query_key_value(states).chunk(3, dim=-1)  # three times (B,T,H*D)
        attended: Tensor = self.output(attend(query, key, value, lengths, self.num_heads, self.is_causal))
        return attended

    def step(self, states: Tensor, cache: KeyValue, write_indices: Tensor) -> tuple[Tensor, KeyValue]:
        """`states` (B,T,E) enter the cache at `write_indices` (B) and attend to all that it then holds."""
        query, key, value = self.query_key_value(states).chunk(3, dim=-1)
        cache = KeyValue(update_cache(cache.key, key, write_indices), update_cache(cache.value, value, write_indices))
        lengths = write_indices + states.shape[1]
        return self.output(attend(query, cache.key, cache.value, lengths, self.num_heads, self.is_causal)), cache


class CrossAttention(nn.Module):
    """Multi-head attention from the decoder to the encoder's output, section 3.2.3."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.query = nn.Linear(config.d_model, config.d_model)
        self.key_value = nn.Linear(config.d_model, 2 * config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def keys_and_values(self, memory: Tensor) -> KeyValue:
        """`memory` (B,S,E) -> keys and values (B,S,H*D): made once a source, read at every step."""
        return KeyValue(*self.key_value(memory).chunk(2, dim=-1))

    def forward(self, states: Tensor, source: KeyValue, source_lengths: Tensor) -> Tensor:
        """`states` (B,T,E) attend to the first `source_lengths` (B/K) positions of `source` (B/K,S,E).

        K neighbouring rows, the beams of one source, share it; mostly K is 1.
        """
        query = self.query(states)
        attended: Tensor = self.output(
            attend(query, source.key, source.value, source_lengths, self.num_heads, is_causal=False)
        )
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
        self.expand = nn.Linear(config.d_model, config.d_ff)
        self.activation = ACTIVATIONS[config.activation]()
        self.contract = nn.Linear(config.d_ff, config.d_model)

    def forward(self, states: Tensor) -> Tensor:
        contracted: Tensor = self.contract(self.activation(self.expand(states)))
        return contracted


class Residual(nn.Module):
    """x + f(x) with its norm and dropout: `enter` goes before the sub-layer, `leave` after it.

    Post-norm is section 3.1, LayerNorm(x + f(x)); pre-norm is x + f(LayerNorm(x)), Xiong et al. 2020,
    https://arxiv.org/abs/2002.04745.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
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
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """`states` (B,S,E), of which `lengths` (B) are real."""
        change = self.self_attention(self.self_attention_residual.enter(states), lengths)
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
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, states: Tensor, source: KeyValue | None, source_lengths: Tensor | None) -> Tensor:
        """All positions at once, without a cache: training. Padding stands on the right, so causality hides it."""
        change = self.self_attention(self.self_attention_residual.enter(states), None)
        states = self.self_attention_residual.leave(states, change)
        return self._rest(states, source, source_lengths)

    def step(
        self,
        states: Tensor,
        cache: KeyValue,
        write_indices: Tensor,
        source: KeyValue | None,
        source_lengths: Tensor | None,
    ) -> tuple[Tensor, KeyValue]:
        """The next T positions of each row, after what the cache holds: prefill and decoding."""
        change, cache = self.self_attention.step(self.self_attention_residual.enter(states), cache, write_indices)
        states = self.self_attention_residual.leave(states, change)
        return self._rest(states, source, source_lengths), cache

    def _rest(self, states: Tensor, source: KeyValue | None, source_lengths: Tensor | None) -> Tensor:
        if source is not None and source_lengths is not None:
            change = self.cross_attention(self.cross_attention_residual.enter(states), source, source_lengths)
            states = self.cross_attention_residual.leave(states, change)
        change = self.feed_forward(self.feed_forward_residual.enter(states))
        return self.feed_forward_residual.leave(states, change)
