"""Label-smoothed cross-entropy, in one pass forward and one back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed cross-entropy in nats, summed: Szegedy et al. 2016, https://arxiv.org/abs/1512.00567.

    `logits` (N,V), `labels` (N). The backward pass turns the logits into their own gradient, so they are used up.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(logits, labels, smoothing)  # type: ignore[no-untyped-call]
    return loss


class _SmoothedCrossEntropy(torch.autograd.Function):
    """PyTorch's own loss crosses the logits, the largest tensor of a step, seven times; this one crosses them twice."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        log_sums = logits.logsumexp(-1, keepdim=True)  # (N,1)
        label_logits = logits.gather(-1, labels[:, None])
        ctx.save_for_backward(logits, labels, log_sums)
        ctx.smoothing = smoothing
        likelihood = (log_sums - label_logits).sum()
        return (1 - smoothing) * likelihood + smoothing * (log_sums.sum() - logits.mean(-1).sum())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """softmax(logits) less the smoothed labels, times `gradient`."""
        logits, labels, log_sums = ctx.saved_tensors
        change = logits.detach().sub_(log_sums).exp_().sub_(ctx.smoothing / logits.shape[-1])
        labelled = torch.full((len(labels), 1), ctx.smoothing - 1, dtype=change.dtype, device=change.device)
        return change.scatter_add_(-1, labels[:, None], labelled).mul_(gradient), None, None
