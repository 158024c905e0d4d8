"""What a transformer attends to: the attention map of every layer and head, beside the forward pass that it explains.

`Transformer` has no notion of being watched. The functions here walk through the same layers in the same order, and ask
each attention for its map before they let the layer run: the numbers are those of the answer, since the weights are.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from model.layers import CrossAttention, KeyValue, SelfAttention
from model.operators import attention_weights, share_heads, split_heads
from model.positions import Place
from model.transformer import Transformer


class AttentionMap(NamedTuple):
    """One layer's attention: `weights` (B,H,Q,K), each row of which sums to one over the keys that it may see.

    `value_norms` (B,H,K) is the length of what a head would write for a key that had all its weight: the value vector
    after the output projection. Their product is how much a key contributes, which the weight alone does not tell
    (Kobayashi et al. 2020, https://aclanthology.org/2020.emnlp-main.574).
    """

    weights: Tensor
    value_norms: Tensor


def encoder_maps(
    model: Transformer, input_ids: Tensor, lengths: Tensor, token_type_ids: Tensor | None = None
) -> tuple[Tensor, list[AttentionMap]]:
    """The encoder's output (B,S,E), and its maps (B,H,S,S) layer after layer; arguments as in `Transformer.encode`."""
    states, places = model.enter_encoder(input_ids, token_type_ids)
    maps = []
    for layer, place in zip(model.encoder_layers, places, strict=True):
        entering = layer.self_attention_residual.enter(states)
        maps.append(_self_map(layer.self_attention, entering, place, lengths))
        states = layer(states, place, lengths)
    memory: Tensor = model.encoder_norm(states)
    return memory, maps


def decoder_maps(
    model: Transformer, target_ids: Tensor, memory: Tensor | None = None, source_lengths: Tensor | None = None
) -> tuple[list[AttentionMap], list[AttentionMap]]:
    """Self-attention maps (B,H,T,T) and, with a source, cross-attention maps (B,H,T,S), layer after layer.

    `target_ids` (B,T) are what the decoder reads, so row i shows what it looks at to choose the token after the i-th.
    `memory` (B,S,E) is the encoder's output, of which `source_lengths` (B) positions are real.
    """
    states, places = model.enter_decoder(target_ids)
    self_maps, cross_maps = [], []
    for layer, place in zip(model.decoder_layers, places, strict=True):
        entering = layer.self_attention_residual.enter(states)
        self_maps.append(_self_map(layer.self_attention, entering, place, None))
        source = None
        if memory is not None and source_lengths is not None:
            source = layer.cross_attention.keys_and_values(memory)
            change = layer.self_attention(entering, place, None)
            between = layer.self_attention_residual.leave(states, change)
            entering = layer.cross_attention_residual.enter(between)
            cross_maps.append(_cross_map(layer.cross_attention, entering, source, source_lengths))
        states = layer(states, place, source, source_lengths)
    return self_maps, cross_maps


def _self_map(attention: SelfAttention, states: Tensor, place: Place, lengths: Tensor | None) -> AttentionMap:
    query, key, value = attention.project(states, place)
    heads = attention.num_heads, attention.num_kv_heads
    weights = attention_weights(query, key, lengths, *heads, attention.is_causal, place.bias, attention.scale)
    return AttentionMap(weights, _value_norms(value, attention.output.weight, *heads))


def _cross_map(attention: CrossAttention, states: Tensor, source: KeyValue, source_lengths: Tensor) -> AttentionMap:
    heads = attention.num_heads, attention.num_kv_heads
    weights = attention_weights(
        attention.query(states), source.key, source_lengths, *heads, is_causal=False, scale=attention.scale
    )
    return AttentionMap(weights, _value_norms(source.value, attention.output.weight, *heads))


def _value_norms(value: Tensor, output: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    """`value` (B,K,KV*D) through each head's part of the output projection `output` (E,H*D) -> lengths (B,H,K)."""
    values = share_heads(split_heads(value, num_kv_heads), num_heads)  # (B,H,K,D)
    parts = output.T.reshape(num_heads, -1, output.shape[0])  # (H,D,E)
    return (values @ parts).square().sum(-1).sqrt()
