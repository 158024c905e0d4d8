"""PyTorch at its best: the weights of one of our models, static caches, SDPA, all state on the device between steps.

Rows of a batch have equal lengths here, so that masks need no lengths and no step waits for the host: it is a peer that
no server could be. It writes the caches in place, picks the next tokens on the device and is read once at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from model.layers import CrossAttention, DecoderLayer, EncoderLayer, KeyValue, SelfAttention
from model.positions import Rotation
from model.transformer import Transformer

Mode = Literal["eager", "compiled"]
MODES: tuple[Mode, ...] = ("eager", "compiled")

Work = Callable[[], None]


def prepare(work: Work, mode: Mode, device: torch.device) -> Work:
    """`work` as it is, or compiled, and on CUDA captured with all its kernels as one graph, which one launch replays.

    `work` takes and gives nothing but tensors that it keeps. It is run a few times here.
    """
    if mode == "eager":
        return work
    if device.type != "cuda":
        # Traced whole as for CUDA, but not compiled: that takes minutes and says nothing of a GPU.
        return _without_gradients(torch.compile(work, fullgraph=True, dynamic=False, backend="eager"))
    compiled = _without_gradients(torch.compile(work, fullgraph=True, dynamic=False))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiles, and lets libraries take their workspaces before the capture
            compiled()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compiled()
    return _replay(graph)


def _without_gradients(work: Work) -> Work:
    def run() -> None:
        with torch.no_grad():
            work()

    return run


def _replay(graph: torch.cuda.CUDAGraph) -> Work:
    def run() -> None:
        graph.replay()

    return run


def encode(model: Transformer, input_ids: Tensor) -> Tensor:
    """`input_ids` (B,S), all real, -> (B,S,E)."""
    positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
    states = model.embedding(input_ids, positions)
    rotation = model.rotary(positions) if model.rotary is not None else None
    for layer in model.encoder_layers:
        states = _encoder_layer(layer, states, rotation)
    encoded: Tensor = model.encoder_norm(states)
    return encoded


def _encoder_layer(layer: EncoderLayer, states: Tensor, rotation: Rotation | None) -> Tensor:
    attention, residual = layer.self_attention, layer.self_attention_residual
    query, key, value = _heads(attention, residual.enter(states), rotation)
    attended = nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=_is_grouped(attention))
    states = residual.leave(states, attention.output(attended.transpose(1, 2).flatten(2)))
    residual = layer.feed_forward_residual
    left: Tensor = residual.leave(states, layer.feed_forward(residual.enter(states)))
    return left


def _is_grouped(attention: SelfAttention | CrossAttention) -> bool:
    return attention.num_kv_heads != attention.num_heads


def _heads(attention: SelfAttention, states: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
    """`states` (B,T,E) -> queries (B,H,T,D), keys and values (B,KV,T,D)."""
    query, key, value = attention.query_key_value(states).split(attention.widths, dim=-1)
    query, key, value = (
        part.unflatten(-1, (number, -1)).transpose(1, 2)
        for part, number in (
            (query, attention.num_heads),
            (key, attention.num_kv_heads),
            (value, attention.num_kv_heads),
        )
    )
    if attention.has_head_norm:
        query, key = attention.query_norm(query).to(value.dtype), attention.key_norm(key).to(value.dtype)
    if rotation is not None:
        query, key = _rotate(query, rotation), _rotate(key, rotation)
    return query, key, value


def _rotate(heads: Tensor, rotation: Rotation) -> Tensor:
    """Section 3.4.2 of Su et al. 2021, https://arxiv.org/abs/2104.09864, for (B,H,T,D) at the positions (1,T)."""
    cosine, sine = rotation.cosines[rotation.positions][:, None], rotation.sines[rotation.positions][:, None]
    first, second = heads.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
    return turned.to(heads.dtype)


class StaticDecoder:
    """The decoder of `model` with a cache for `num_rows` rows that all stand at the same position.

    With a source, `source` (B/K,S) is its shape, and K neighbouring rows read one of its rows.
    """

    def __init__(self, model: Transformer, num_rows: int, capacity: int, source: tuple[int, int] | None = None) -> None:
        self.model, self.device = model, model.embedding.token.weight.device
        self.capacity = capacity
        self.cache = self._new_cache(num_rows, capacity)
        self.cross = self._new_cache(*source) if source is not None else []
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)

    def _new_cache(self, num_rows: int, capacity: int) -> list[KeyValue]:
        weight, config = self.model.embedding.token.weight, self.model.config
        shape = (num_rows, config.num_kv_heads or config.num_heads, capacity, config.head_size)
        return [KeyValue(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in self.model.decoder_layers]

    def keep_source(self, memory: Tensor) -> None:
        """Make `memory` (B/K,S,E) what the rows read; its cross keys and values are kept."""
        for index, layer in enumerate(self.model.decoder_layers):
            attention = layer.cross_attention
            for kept, new in zip(self.cross[index], attention.keys_and_values(memory), strict=True):
                kept.copy_(new.unflatten(-1, (attention.num_kv_heads, -1)).transpose(1, 2))

    def advance(self, input_ids: Tensor) -> Tensor:
        """Write `input_ids` (B,T) behind what the cache holds; logits (B,V) after the last of them."""
        model = self.model
        positions = self.position + torch.arange(input_ids.shape[1], device=self.device)  # (T)
        states = model.embedding(input_ids, positions[None])
        rotation = model.rotary(positions[None]) if model.rotary is not None else None
        mask = torch.arange(self.capacity, device=self.device) <= positions[:, None]  # (T,C)
        for index, layer in enumerate(model.decoder_layers):
            states = self._layer(layer, index, states, rotation, positions, mask)
        self.position.add_(input_ids.shape[1])
        return model.project(model.decoder_norm(states[:, -1]))

    def _layer(
        self,
        layer: DecoderLayer,
        index: int,
        states: Tensor,
        rotation: Rotation | None,
        positions: Tensor,
        mask: Tensor,
    ) -> Tensor:
        residual, attention = layer.self_attention_residual, layer.self_attention
        query, key, value = _heads(attention, residual.enter(states), rotation)
        cache = self.cache[index]
        cache.key.index_copy_(2, positions, key)
        cache.value.index_copy_(2, positions, value)
        states = residual.leave(states, attention.output(_grouped_attention(query, cache, mask)))
        if self.cross:
            residual = layer.cross_attention_residual
            states = residual.leave(states, self._cross(layer.cross_attention, index, residual.enter(states)))
        residual = layer.feed_forward_residual
        left: Tensor = residual.leave(states, layer.feed_forward(residual.enter(states)))
        return left

    def _cross(self, attention: CrossAttention, index: int, states: Tensor) -> Tensor:
        """The K rows of a source are so many queries of one row, so its keys and values are read once for all."""
        source = self.cross[index]
        shared = attention.query(states).reshape(len(source.key), -1, attention.num_heads, source.key.shape[-1])
        query = shared.transpose(1, 2)  # (B/K,H,K*T,D)
        attended = nn.functional.scaled_dot_product_attention(query, *source, enable_gqa=_is_grouped(attention))
        merged: Tensor = attention.output(attended.transpose(1, 2).reshape(*states.shape[:2], -1))
        return merged

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes a copy of rows[i]."""
        for cache in self.cache:
            for part in cache:
                part.copy_(part[rows])


def _grouped_attention(query: Tensor, cache: KeyValue, mask: Tensor) -> Tensor:
    """`query` (B,H,T,D) over the cache (B,KV,C,D) where `mask` (T,C) allows, -> (B,T,H*D).

    Heads that share keys and values are so many queries of one head, so these are neither copied nor read twice.
    """
    num_rows, num_heads, num_new, size = query.shape
    num_kv_heads = cache.key.shape[1]
    shared = query.reshape(num_rows, num_kv_heads, -1, size)  # (B,KV,G*T,D)
    masks = mask.repeat(num_heads // num_kv_heads, 1)
    attended = nn.functional.scaled_dot_product_attention(shared, *cache, attn_mask=masks)
    return attended.reshape(num_rows, num_heads, num_new, size).transpose(1, 2).flatten(2)
