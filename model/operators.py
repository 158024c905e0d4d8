"""Two custom operators: writing into a key-value cache, and attention over it.

Each has plain eager code as its meaning and a standard ONNX operator (opset 24) as its translation: `update_cache` is
`TensorScatter`, `attend` is `Attention` with `nonpad_kv_seqlen`. So one forward pass serves training, PyTorch decoding
and export, and no module asks which of them it is in.

Shape letters here and in the rest of `model/`: B batch, S source, T target, C cache capacity, H heads, D head size,
E model width (H*D), V vocabulary, K beams.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("polyhead::update_cache", mutates_args=())
def update_cache(cache: Tensor, new: Tensor, write_indices: Tensor) -> Tensor:
    """`cache` (B,C,E) with `new` (B,T,E) written into row b from position write_indices[b] on.

    `write_indices` is (B) int64; write_indices[b] + T must not exceed C. No gradient flows through it: training attends
    without a cache.
    """
    num_rows, num_new, _ = new.shape
    rows = torch.arange(num_rows, device=new.device)[:, None]
    positions = write_indices[:, None] + torch.arange(num_new, device=new.device)  # (B,T)
    updated = cache.clone()
    updated[rows, positions] = new
    return updated


@update_cache.register_fake
def _(cache: Tensor, new: Tensor, write_indices: Tensor) -> Tensor:
    return torch.empty_like(cache)


@torch.library.custom_op("polyhead::attend", mutates_args=())
def attend(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, num_heads: int, is_causal: bool
) -> Tensor:
    """Multi-head scaled dot-product attention, section 3.2 of Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.

    `query` (B,T,E); `key`, `value` (B,C,E); result (B,T,E). `lengths` (B) int64 counts the real keys of each row (None:
    all C). When causal, the last query of a row is aligned with its last real key, so query i of row b sees the keys
    j <= lengths[b] - T + i; a query that sees no key gives zeros.

    Where not causal, K neighbouring rows of `query` may share one row of `key`, `value` and `lengths` (B/K): the beams
    of one source, which then is read once for all of them.
    """
    shared = query.reshape(len(key), -1, query.shape[-1])  # (B/K,K*T,E)
    weights = attention_weights(shared, key, lengths, num_heads, is_causal)
    return _merge_heads(weights.to(value.dtype) @ _split_heads(value, num_heads)).reshape(query.shape)


@attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, num_heads: int, is_causal: bool) -> Tensor:
    return torch.empty_like(query)


def attention_weights(query: Tensor, key: Tensor, lengths: Tensor | None, num_heads: int, is_causal: bool) -> Tensor:
    """The attention map (B,H,T,C) of `attend`, in float32 or better: a row sums to one over the keys it may see."""
    heads = _split_heads(query, num_heads)  # (B,H,T,D)
    scores = _at_least_float32(heads @ _split_heads(key, num_heads).transpose(2, 3))  # (B,H,T,C)
    scores = scores * _scale(heads)
    mask = attention_mask(query, key, lengths, is_causal)
    if mask is None:
        return scores.softmax(-1)
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


def attention_mask(query: Tensor, key: Tensor, lengths: Tensor | None, is_causal: bool) -> Tensor | None:
    """Which keys each query may see: True means attend, broadcastable to (B,1,T,C); None when it may see all."""
    num_queries, num_keys = query.shape[1], key.shape[1]
    if lengths is None and not is_causal:
        return None
    positions = torch.arange(num_keys, device=query.device)
    ends = torch.full((1,), num_keys, device=query.device) if lengths is None else lengths
    if not is_causal:
        return (positions < ends[:, None])[:, None, None, :]
    frontier = ends[:, None] - num_queries + torch.arange(num_queries, device=query.device)  # (B,T)
    return (positions <= frontier[:, :, None])[:, None]


def _split_heads(states: Tensor, num_heads: int) -> Tensor:
    num_rows, num_positions, width = states.shape
    return states.reshape(num_rows, num_positions, num_heads, width // num_heads).transpose(1, 2)  # -> (B,H,T,D)


def _merge_heads(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)  # (B,H,T,D) -> (B,T,E)


def _scale(heads: Tensor) -> float:
    return 1 / math.sqrt(heads.shape[-1])


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query, key, value, lengths, ctx.num_heads, ctx.is_causal = inputs
    ctx.save_for_backward(query, key, value, lengths)


def _attend_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of query, key and value; the attention map is computed again, since it is too large to keep."""
    query, key, value, lengths = ctx.saved_tensors
    shape = query.shape
    query, gradient = (tensor.reshape(len(key), -1, shape[-1]) for tensor in (query, gradient))
    weights = attention_weights(query, key, lengths, ctx.num_heads, ctx.is_causal)
    heads = _split_heads(gradient, ctx.num_heads)  # (B,H,T,D)
    value_gradient = weights.to(heads.dtype).transpose(2, 3) @ heads
    weights_gradient = _at_least_float32(heads @ _split_heads(value, ctx.num_heads).transpose(2, 3))
    # The softmax's own gradient, then that of the scaling; unseen keys have the weight 0 and so no gradient.
    scores_gradient = weights * (weights_gradient - (weights_gradient * weights).sum(-1, keepdim=True))
    scores_gradient = (scores_gradient * _scale(heads)).to(query.dtype)
    query_gradient = scores_gradient @ _split_heads(key, ctx.num_heads)
    key_gradient = scores_gradient.transpose(2, 3) @ _split_heads(query, ctx.num_heads)
    query_gradient = _merge_heads(query_gradient).reshape(shape)
    return query_gradient, _merge_heads(key_gradient), _merge_heads(value_gradient), None, None, None


attend.register_autograd(_attend_backward, setup_context=_save_for_backward)
