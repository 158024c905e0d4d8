"""Three custom operators: rotating by position, writing into a key-value cache, and attention over it.

Each has plain eager code as its meaning and a standard ONNX operator (opset 24) as its translation: `rotate` is
`RotaryEmbedding`, `update_cache` is `TensorScatter`, `attend` is `Attention` with `nonpad_kv_seqlen`. So one forward
pass serves training, PyTorch decoding and export, and no module asks which of them it is in.

Shape letters here and in the rest of `model/`: B batch, S source, T target, C cache capacity, H heads, KV heads of keys
and values (mostly H), D head size, E model width (mostly H*D), V vocabulary, K beams.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("polyhead::rotate", mutates_args=())
def rotate(states: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor, num_heads: int) -> Tensor:
    """Rotary positions, section 3.4.2 of Su et al. 2021, https://arxiv.org/abs/2104.09864.

    `states` (B,T,H*D) stand at `positions` (B,T) int64; `cosines` and `sines` (N,D/2) hold the angles of N positions. A
    pair is a channel of a head's first half with its like in the second, as most checkpoints have it; the paper's pairs
    are adjacent, which is the same up to the order of the projection's rows.
    """
    first, second = _at_least_float32(states.unflatten(-1, (num_heads, -1))).chunk(2, dim=-1)  # twice (B,T,H,D/2)
    cosine, sine = cosines[positions][:, :, None], sines[positions][:, :, None]  # (B,T,1,D/2)
    rotated = torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
    return rotated.flatten(2).to(states.dtype)


@rotate.register_fake
def _(states: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor, num_heads: int) -> Tensor:
    return torch.empty_like(states)


def _save_rotation(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cosines, sines, positions, ctx.num_heads = inputs
    ctx.save_for_backward(cosines, sines, positions)


def _rotate_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """A rotation's gradient is the rotation back."""
    cosines, sines, positions = ctx.saved_tensors
    return rotate(gradient, cosines, -sines, positions, ctx.num_heads), None, None, None, None


rotate.register_autograd(_rotate_backward, setup_context=_save_rotation)


@torch.library.custom_op("polyhead::update_cache", mutates_args=())
def update_cache(cache: Tensor, new: Tensor, write_indices: Tensor) -> Tensor:
    """`cache` (B,C,KV*D) with `new` (B,T,KV*D) written into row b from position write_indices[b] on.

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
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    num_heads: int,
    num_kv_heads: int,
    is_causal: bool,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Multi-head scaled dot-product attention, section 3.2 of Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.

    `query` (B,T,H*D); `key`, `value` (B,C,KV*D); result (B,T,H*D). H is a multiple of KV: adjacent heads of queries
    share a head of keys and values (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245). `lengths` (B) int64 counts
    the real keys of each row (None: all C). When causal, the last query of a row is aligned with its last real key, so
    query i of row b sees the keys j <= lengths[b] - T + i; a query that sees no key gives zeros. Scores are multiplied
    by `scale`, by default 1 / sqrt(D), and `bias`, broadcastable to (B,H,T,C), is added to them.

    Where not causal and without a bias, K adjacent rows of `query` may share one row of `key`, `value` and
    `lengths` (B/K): the beams of one source, which then is read once for all of them.
    """
    shared = query.reshape(len(key), -1, query.shape[-1])  # (B/K,K*T,H*D)
    weights = attention_weights(shared, key, lengths, num_heads, num_kv_heads, is_causal, bias, scale)
    values = share_heads(split_heads(value, num_kv_heads), num_heads)
    return _merge_heads(weights.to(value.dtype) @ values).reshape(query.shape)


@attend.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    num_heads: int,
    num_kv_heads: int,
    is_causal: bool,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    return torch.empty_like(query)


def attention_weights(
    query: Tensor,
    key: Tensor,
    lengths: Tensor | None,
    num_heads: int,
    num_kv_heads: int,
    is_causal: bool,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The attention map (B,H,T,C) of `attend`, in float32 or better: a row sums to one over the keys it may see."""
    heads = split_heads(query, num_heads)  # (B,H,T,D)
    keys = share_heads(split_heads(key, num_kv_heads), num_heads)
    scores = _at_least_float32(heads @ keys.transpose(2, 3))  # (B,H,T,C)
    scores = scores * (_scale(heads) if scale is None else scale)
    if bias is not None:
        scores = scores + bias
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
    if lengths is not None and not is_causal:
        return (positions < lengths[:, None])[:, None, None, :]
    # Shapes enter as the bounds of a range alone: arithmetic with them would be a copy to the device in every graph.
    if lengths is None:
        frontier = torch.arange(num_keys - num_queries, num_keys, device=query.device)[None]  # (1,T)
    else:
        frontier = lengths[:, None] + torch.arange(-num_queries, 0, device=query.device)  # (B,T)
    return (positions <= frontier[:, :, None])[:, None]


def split_heads(states: Tensor, num_heads: int) -> Tensor:
    """(B,T,H*D) -> (B,H,T,D)."""
    num_rows, num_positions, width = states.shape
    return states.reshape(num_rows, num_positions, num_heads, width // num_heads).transpose(1, 2)


def _merge_heads(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)  # (B,H,T,D) -> (B,T,H*D)


def share_heads(heads: Tensor, num_heads: int) -> Tensor:
    """(B,KV,C,D) -> (B,H,C,D), each head for H/KV adjacent ones of queries."""
    num_kv_heads = heads.shape[1]
    return heads[:, :, None].expand(-1, -1, num_heads // num_kv_heads, -1, -1).flatten(1, 2)


def _gather_heads(gradients: Tensor, num_kv_heads: int) -> Tensor:
    """The gradient of `share_heads`: (B,H,C,D) -> (B,KV,C,D), summed over the heads that share one."""
    gathered: Tensor = gradients.unflatten(1, (num_kv_heads, -1)).sum(2)
    return gathered


def _scale(heads: Tensor) -> float:
    return 1 / math.sqrt(heads.shape[-1])


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query, key, value, lengths, ctx.num_heads, ctx.num_kv_heads, ctx.is_causal, bias, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, lengths, bias)


def _attend_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of query, key, value and bias; the attention map is made again, since it is too large to keep."""
    query, key, value, lengths, bias = ctx.saved_tensors
    shape = query.shape
    query, gradient = (tensor.reshape(len(key), -1, shape[-1]) for tensor in (query, gradient))
    weights = attention_weights(query, key, lengths, ctx.num_heads, ctx.num_kv_heads, ctx.is_causal, bias, ctx.scale)
    heads = split_heads(gradient, ctx.num_heads)  # (B,H,T,D)
    keys, values = (share_heads(split_heads(part, ctx.num_kv_heads), ctx.num_heads) for part in (key, value))
    value_gradient = weights.to(heads.dtype).transpose(2, 3) @ heads
    weights_gradient = _at_least_float32(heads @ values.transpose(2, 3))
    # The softmax's own gradient, then that of the scaling; unseen keys have the weight 0 and so no gradient.
    scores_gradient = weights * (weights_gradient - (weights_gradient * weights).sum(-1, keepdim=True))
    bias_gradient = None if bias is None else scores_gradient.sum_to_size(bias.shape).to(bias.dtype)
    scale = _scale(heads) if ctx.scale is None else ctx.scale
    scores_gradient = (scores_gradient * scale).to(query.dtype)
    query_gradient = _merge_heads(scores_gradient @ keys).reshape(shape)
    key_gradient = scores_gradient.transpose(2, 3) @ split_heads(query, ctx.num_heads)
    key_gradient, value_gradient = (
        _merge_heads(_gather_heads(part, ctx.num_kv_heads)) for part in (key_gradient, value_gradient)
    )
    return query_gradient, key_gradient, value_gradient, None, None, None, None, bias_gradient, None


attend.register_autograd(_attend_backward, setup_context=_save_for_backward)
