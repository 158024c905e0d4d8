"""Two custom operators: writing into a key-value cache, and attention over it.

Each has plain eager code as its meaning and a standard ONNX operator (opset 24) as its translation: `update_cache` is
`TensorScatter`, `attend` is `Attention` with `nonpad_kv_seqlen`. So one forward pass serves training, PyTorch decoding
and export, and no module asks which of them it is in.

Shape letters here and in the rest of `model/`: B batch, S source, T target, C cache capacity, H heads, D head size,
E model width, V vocabulary, L layers.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("polyhead::update_cache", mutates_args=())
def update_cache(cache: Tensor, new: Tensor, write_indices: Tensor) -> Tensor:
    """Return `cache` (B,C,E) with `new` (B,T,E) written into row b at positions write_indices[b] to write_indices[b]+T-1.

    `write_indices` is (B) int64; write_indices[b] + T must not exceed C.
    """
    num_rows, num_new, _ = new.shape
    positions = write_indices[:, None] + torch.arange(num_new, device=new.device)  # (B,T)
    updated = cache.clone()
    updated[torch.arange(num_rows, device=new.device)[:, None], positions] = new
    return updated


@update_cache.register_fake
def _(cache: Tensor, new: Tensor, write_indices: Tensor) -> Tensor:
    return torch.empty_like(cache)


@torch.library.custom_op("polyhead::attend", mutates_args=())
def attend(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, num_heads: int, is_causal: bool
) -> Tensor:
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2).

    `query` (B,T,H*D); `key`, `value` (B,C,H*D); result (B,T,H*D). `lengths` (B) int64 counts the real keys of each row
    (None: all C). When causal, the last query of a row is aligned with its last real key, so query i of row b
    sees the keys j <= lengths[b] - T + i; a query that sees no key gives zeros.
    """
    weights = attention_weights(query, key, lengths, num_heads, is_causal)
    return _merge_heads(weights.to(value.dtype) @ _split_heads(value, num_heads))


@attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, num_heads: int, is_causal: bool
) -> Tensor:
    return torch.empty_like(query)


def attention_weights(
    query: Tensor, key: Tensor, lengths: Tensor | None, num_heads: int, is_causal: bool
) -> Tensor:
    """The attention map (B,H,T,C) of `attend`: each row sums to one over the keys it may see."""
    heads = _split_heads(query, num_heads)  # (B,H,T,D)
    scores = heads @ _split_heads(key, num_heads).transpose(2, 3)  # (B,H,T,C)
    scores = scores.float() * heads.shape[-1] ** -0.5
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
    return states.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B,T,H*D) -> (B,H,T,D)


def _merge_heads(states: Tensor) -> Tensor:
    return states.transpose(1, 2).flatten(2)  # (B,H,T,D) -> (B,T,H*D)


def _save_for_backward(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: Tensor) -> None:  # type: ignore[type-arg]
    query, key, value, lengths, num_heads, is_causal = inputs
    ctx.save_for_backward(query, key, value, lengths)  # type: ignore[attr-defined]
    ctx.num_heads, ctx.is_causal = num_heads, is_causal  # type: ignore[attr-defined]


def _attend_backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of query, key and value; the weights are computed again, not kept."""
    query, key, value, lengths = ctx.saved_tensors  # type: ignore[attr-defined]
    num_heads: int = ctx.num_heads  # type: ignore[attr-defined]
    weights = attention_weights(query, key, lengths, num_heads, ctx.is_causal)  # type: ignore[attr-defined]
    heads = _split_heads(gradient, num_heads)
    value_gradient = weights.to(heads.dtype).transpose(2, 3) @ heads
    weights_gradient = (heads @ _split_heads(value, num_heads).transpose(2, 3)).float()
    scores_gradient = weights * (weights_gradient - (weights_gradient * weights).sum(-1, keepdim=True))
    scores_gradient = (scores_gradient * value_gradient.shape[-1] ** -0.5).to(query.dtype)
    query_gradient = scores_gradient @ _split_heads(key, num_heads)
    key_gradient = scores_gradient.transpose(2, 3) @ _split_heads(query, num_heads)
    return _merge_heads(query_gradient), _merge_heads(key_gradient), _merge_heads(value_gradient), None, None, None


attend.register_autograd(_attend_backward, setup_context=_save_for_backward)
