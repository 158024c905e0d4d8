"""Two operators that only a graph for serving needs: the states of chosen positions, and the best tokens after each.

Like those of `model.operators` they have plain eager code as their meaning, and a translation into ONNX. See
docs/decisions/0014-ranking-in-blocks.md.
"""

from __future__ import annotations

from typing import Any

import torch
from onnxscript.values import Opset
from torch import Tensor

_SMALLEST_VOCABULARY = 2048
"""Below this, one ranking is as fast as two."""

_WIDTHS = sorted(range(16, 257), key=lambda width: (abs(width - 64), width))
"""Widths of a block, the best first."""


@torch.library.custom_op("polyhead::take", mutates_args=())
def take(states: Tensor, indices: Tensor) -> Tensor:
    """The states (R,E) of `states` (B,T,E) at `indices` (R) int64, which count positions row after row: b * T + t."""
    return states.flatten(0, 1)[indices]


@take.register_fake
def _(states: Tensor, indices: Tensor) -> Tensor:
    return states.new_empty(indices.shape[0], states.shape[2])


@torch.library.custom_op("polyhead::rank", mutates_args=())
def rank(logits: Tensor, num_candidates: Tensor, max_candidates: int) -> tuple[Tensor, Tensor]:
    """The `num_candidates` (1) int64 best tokens of `logits` (B,V), best first, and their log probabilities.

    Returns ids (B,N) int64 and log probabilities (B,N). Which of two equal logits comes first is not said. More than
    `max_candidates` cannot be asked for.
    """
    ids = torch.topk(logits, int(num_candidates)).indices
    return ids, logits.log_softmax(-1).gather(1, ids)


@rank.register_fake
def _(logits: Tensor, num_candidates: Tensor, max_candidates: int) -> tuple[Tensor, Tensor]:
    count = torch.library.get_ctx().new_dynamic_size(min=1, max=logits.shape[-1])
    return logits.new_empty(logits.shape[0], count, dtype=torch.int64), logits.new_empty(logits.shape[0], count)


def block_width(vocab_size: int, max_candidates: int) -> int | None:
    """How many adjacent tokens make a block; None where the vocabulary is too small for blocks, or a prime.

    There are at least as many blocks as candidates: the number of blocks to choose is then that of the candidates, and
    needs no arithmetic, which on a device would have to come back to the host before it could be the size of a result.
    """
    if vocab_size < _SMALLEST_VOCABULARY:
        return None
    widths = (width for width in _WIDTHS if vocab_size % width == 0 and vocab_size // width >= max_candidates)
    return next(widths, None)


def translations(op: Opset) -> dict[Any, Any]:
    """How both operators are written in ONNX with the operators of `op`."""

    def write_take(states: Any, indices: Any) -> Any:
        return op.Gather(op.Reshape(states, op.Constant(value_ints=[-1, states.shape[-1]])), indices, axis=0)

    def write_rank(logits: Any, num_candidates: Any, max_candidates: int) -> Any:
        width = block_width(logits.shape[-1], max_candidates)
        if width is None:
            _, ids = op.TopK(logits, num_candidates, axis=-1)
        else:
            ids = rank_in_blocks(logits, num_candidates, logits.shape[-1] // width, width)
        return ids, op.GatherElements(op.LogSoftmax(logits, axis=-1), ids, axis=1)

    def rank_in_blocks(logits: Any, num_candidates: Any, num_blocks: int, width: int) -> Any:
        """The N best tokens are within the N blocks whose best tokens are the best."""
        blocks = op.Reshape(logits, op.Constant(value_ints=[0, num_blocks, width]))  # (B,V/W,W)
        best = op.ReduceMax(blocks, op.Constant(value_ints=[2]), keepdims=0)
        _, chosen = op.TopK(best, num_candidates, axis=-1)  # (B,N) numbers of blocks
        last = op.Constant(value_ints=[-1])
        few = op.GatherND(blocks, op.Unsqueeze(chosen, last), batch_dims=1)  # (B,N,W)
        _, places = op.TopK(op.Reshape(few, op.Constant(value_ints=[0, -1])), num_candidates, axis=-1)
        size = op.Constant(value_int=width)
        ranks = op.Div(places, size)  # (B,N) of the block that each comes from
        return op.Add(places, op.Mul(op.Sub(op.GatherElements(chosen, ranks, axis=1), ranks), size))

    return {torch.ops.polyhead.take.default: write_take, torch.ops.polyhead.rank.default: write_rank}
