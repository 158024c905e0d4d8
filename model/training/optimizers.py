"""Adam and Muon behind one interface, and the learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from model.layers import SelfAttention
from model.training.config import OptimizerConfig

# Quintic iteration that brings all singular values near one; coefficients by Jordan et al. 2024 (Muon).
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5


class Muon(Optimizer):
    """Momentum, orthogonalised: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/.

    For the weight matrices inside the layers. It reaches a given loss in fewer steps than Adam, which counts where the
    machine makes few. `torch.optim.Muon` does the same but always computes in bfloat16, which a processor without
    bfloat16 instructions emulates; here the type is the gradient's own. A fused projection is orthogonalised part by
    part: `parts` of a parameter group says of how many equal blocks of rows its matrices are made, or of how many rows
    each block has.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        workers: Executor | None = None,
    ) -> None:
        super().__init__(groups, {"lr": 0.02, "momentum": momentum, "weight_decay": weight_decay, "parts": 1})
        self._map: Callable[..., Iterable[None]] = workers.map if workers else map

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no search along a line, so no closure
        """Update every matrix that has a gradient, several side by side where there are workers."""
        pairs = ((parameter, group) for group in self.param_groups for parameter in group["params"])
        due = [(parameter, group) for parameter, group in pairs if parameter.grad is not None]
        for parameter, _ in due:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        for _ in self._map(lambda item: self._update(*item), due):
            pass  # to the end, so that a worker's error is raised here

    @torch.no_grad()
    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        momentum = self.state[parameter]["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
        update = parameter.grad.lerp(momentum, group["momentum"])  # Nesterov's look ahead
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        blocks = [_blocks(matrix, group["parts"]) for matrix in (update, parameter)]
        for block, rows in zip(*blocks, strict=True):
            scale = math.sqrt(max(1.0, block.shape[0] / block.shape[1]))
            rows.add_(orthogonalise(block), alpha=-group["lr"] * scale)


def _blocks(matrix: Tensor, parts: int | Sequence[int]) -> Sequence[Tensor]:
    return matrix.chunk(parts) if isinstance(parts, int) else matrix.split(list(parts))


def orthogonalise(matrix: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrix, roughly: it brings singular values to between about 0.7 and 1.2."""
    first, second, third = _NEWTON_SCHULZ
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide: Tensor = matrix.T if is_tall else matrix
    wide = wide / (wide.norm() + 1e-7)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        square = wide @ wide.T
        wide = first * wide + (second * square + third * square @ square) @ wide
    return wide.T if is_tall else wide


def build_optimizers(model: nn.Module, config: OptimizerConfig, workers: Executor | None = None) -> list[Optimizer]:
    """One optimizer, or two where Muon steers the matrices inside the layers, on `workers`, and Adam the rest."""
    named = dict(model.named_parameters())
    matrices = {}
    if config.kind == "muon":
        matrices = {name: p for name, p in named.items() if p.ndim == 2 and "_layers." in name}
    others = [parameter for name, parameter in named.items() if name not in matrices]
    decay = config.weight_decay
    optimizers: list[Optimizer] = [
        torch.optim.AdamW(others, config.learning_rate, config.betas, eps=1e-9, weight_decay=decay, fused=True)
    ]
    if matrices:
        widths = {
            f"{name}.query_key_value.weight": module.widths
            for name, module in model.named_modules()
            if isinstance(module, SelfAttention)
        }
        groups = [{**group, "lr": config.matrix_learning_rate} for group in _matrix_groups(matrices, widths)]
        optimizers.append(Muon(groups, weight_decay=decay, workers=workers))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def _matrix_groups(matrices: dict[str, nn.Parameter], widths: Mapping[str, tuple[int, ...]]) -> list[dict[str, Any]]:
    """By parts; `widths` are the rows of query, key and value in their projection, which grouped heads make unequal."""
    by_parts: dict[int | tuple[int, ...], list[nn.Parameter]] = {3: [], 2: [], 1: []}
    for name, matrix in matrices.items():
        if name in widths:
            by_parts.setdefault(3 if len(set(widths[name])) == 1 else widths[name], []).append(matrix)
        elif name.endswith("cross_attention.key_value.weight"):
            by_parts[2].append(matrix)
        else:
            by_parts[1].append(matrix)
    return [{"params": group, "parts": parts} for parts, group in by_parts.items() if group]


def rate(step: int, config: OptimizerConfig, max_steps: int) -> float:
    """The learning rate of a step (counted from 0) as a share of the peak.

    Warm-up is linear. `inverse_sqrt` is section 5.3 of Vaswani et al. 2017, `cosine` is Loshchilov and Hutter 2017.
    """
    step += 1
    if step < config.warmup_steps:
        share = step / config.warmup_steps
    elif config.schedule == "inverse_sqrt":
        share = math.sqrt(config.warmup_steps / step) if config.warmup_steps else 1.0
    elif config.schedule == "cosine":
        progress = (step - config.warmup_steps) / max(1, max_steps - config.warmup_steps)
        share = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    else:
        share = 1.0
    if config.cooldown_steps:
        share *= min(1.0, max(0.0, (max_steps - step + 1) / config.cooldown_steps))
    return share


def set_rate(optimizers: Iterable[Optimizer], share: float) -> None:
    """Set every learning rate to `share` of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * share
