"""What a request may ask of the choice of its tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

_MAX_PENALTY = 100.0
"""Far beyond any useful value, and far below float32's range."""
_SEEDS = range(-(2**63), 2**64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How the next token is chosen: the likeliest one, or with `do_sample` one that is drawn.

    `logit_bias` adds to the logits of tokens. `repetition_penalty` (https://arxiv.org/abs/1909.05858) bears on every
    token of the prompt and the output, `frequency_penalty` and `presence_penalty` (OpenAI's) on those of the output.
    These change the greedy choice too; the others need `do_sample`: `temperature`, then what may be drawn is narrowed
    down by `top_k` (0: off), `top_p` (1: off), `min_p` (0: off) and `typical_p` (1: off), in this order.
    Equal seeds give equal outputs; None is different each time. Raises ValueError for invalid values.
    """

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(
                f"temperature is {self.temperature}; it must be greater than 0 (do_sample=False is greedy)"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be at least 1, or 0 for all tokens")
        for name in ("top_p", "typical_p"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be greater than 0 and at most 1")
        if not 0.0 <= self.min_p <= 1.0:
            raise ValueError(f"min_p is {self.min_p}; it must lie between 0 and 1")
        if not 0.0 < self.repetition_penalty <= _MAX_PENALTY:
            raise ValueError(
                f"repetition_penalty is {self.repetition_penalty}; it must be greater than 0, at most {_MAX_PENALTY:g}"
            )
        for name in ("frequency_penalty", "presence_penalty"):
            if not -_MAX_PENALTY <= getattr(self, name) <= _MAX_PENALTY:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie between ±{_MAX_PENALTY:g}")
        for token_id, bias in self.logit_bias:
            if token_id < 0 or not abs(bias) <= _MAX_PENALTY:
                raise ValueError(f"logit_bias of token {token_id} is {bias}; it must lie between ±{_MAX_PENALTY:g}")
        if self.seed is not None and self.seed not in _SEEDS:
            raise ValueError(f"seed is {self.seed}; it must be an integer of 64 bits")

    @property
    def changes_logits(self) -> bool:
        """Whether a bias or a penalty is set, so that the model's own ranking is not the final one."""
        return (
            bool(self.logit_bias)
            or self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
        )
