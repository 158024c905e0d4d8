"""The frequencies of rotary positions and how they are stretched to longer contexts; plain numbers, free of torch.

RoFormer, Su et al. 2021, https://arxiv.org/abs/2104.09864: each pair of a head's channels turns by an angle that grows
with the position, each at a speed of its own, so that a query and a key meet at an angle that tells their distance. A
model that was trained on short texts reads longer ones when its pairs turn more slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

RotaryScalingKind = Literal["none", "linear", "llama3", "yarn"]


@dataclass(frozen=True)
class RotaryScaling:
    """How the frequencies are lowered, so that a model reads texts beyond the `original_max_seq_len` of its training.

    "linear" divides all by `factor`: Chen et al. 2023, https://arxiv.org/abs/2306.15595. "llama3" and "yarn" leave fast
    pairs alone, divide slow ones, and go over from one to the other between two numbers of turns within the original
    length: Llama 3, https://arxiv.org/abs/2407.21783, and YaRN, Peng et al. 2023, https://arxiv.org/abs/2309.00071.
    """

    kind: RotaryScalingKind = "none"
    factor: float = 1.0
    original_max_seq_len: int = 0
    """For llama3 and yarn."""
    slow_turns: float = 1.0
    """Pairs that turn less often than this are divided in full: `low_freq_factor` of llama3, `beta_slow` of yarn."""
    fast_turns: float = 4.0
    """Pairs that turn more often are left alone: `high_freq_factor` of llama3; `beta_fast` of yarn, there mostly 32."""
    attention_factor: float = 1.0
    """What queries and keys are multiplied by: 1, but for yarn, whose paper recommends 0.1 ln(factor) + 1."""

    def problems(self) -> list[str]:
        """What is wrong with it, a sentence each that names the field, its value and what is allowed."""
        if self.kind not in get_args(RotaryScalingKind):
            allowed = ", ".join(get_args(RotaryScalingKind))
            return [f"rotary_scaling.kind is {self.kind!r}, allowed: {allowed}"]
        numbers = {name: getattr(self, name) for name in ("factor", "slow_turns", "fast_turns", "attention_factor")}
        numbers["original_max_seq_len"] = self.original_max_seq_len
        problems = [
            f"rotary_scaling.{name} is {value!r}, it must be a number"
            for name, value in numbers.items()
            if isinstance(value, bool) or not isinstance(value, int | float)
        ]
        return problems or self._value_problems()

    def _value_problems(self) -> list[str]:
        problems = []
        if not 1.0 <= self.factor < math.inf:
            problems.append(f"rotary_scaling.factor is {self.factor}, it must be at least 1")
        if not 0.0 < self.attention_factor < math.inf:
            problems.append(f"rotary_scaling.attention_factor is {self.attention_factor}, it must be positive")
        if self.kind in ("llama3", "yarn"):
            if not 0.0 < self.slow_turns < self.fast_turns < math.inf:
                problems.append(
                    f"rotary_scaling.slow_turns is {self.slow_turns} and fast_turns {self.fast_turns}, "
                    "allowed: 0 < slow_turns < fast_turns"
                )
            if self.original_max_seq_len < 1:
                problems.append(
                    f"rotary_scaling.original_max_seq_len is {self.original_max_seq_len}, "
                    f"it must be at least 1 for {self.kind!r}"
                )
        return problems


NO_SCALING = RotaryScaling()


def frequencies(head_size: int, base: float, scaling: RotaryScaling) -> list[float]:
    """How far each of the D/2 pairs of a head turns from one position to the next, in radians, the fastest first."""
    plain = [base ** (-index / head_size) for index in range(0, head_size, 2)]
    if scaling.kind == "none":
        return plain
    kept = _shares_kept(plain, head_size, base, scaling)
    return [
        share * frequency + (1 - share) * frequency / scaling.factor
        for frequency, share in zip(plain, kept, strict=True)
    ]


def _shares_kept(plain: list[float], head_size: int, base: float, scaling: RotaryScaling) -> list[float]:
    """For each pair, from 0 (divided in full) to 1 (left alone)."""
    if scaling.kind == "linear":
        return [0.0] * len(plain)
    if scaling.kind == "llama3":  # interpolates by the number of turns
        turns = [scaling.original_max_seq_len * frequency / math.tau for frequency in plain]
        return [_clip((number - scaling.slow_turns) / (scaling.fast_turns - scaling.slow_turns)) for number in turns]

    # yarn interpolates by the pair's index, section 3.2 and appendix A.1
    def index_of(turns: float) -> float:
        return head_size * math.log(scaling.original_max_seq_len / (turns * math.tau)) / (2 * math.log(base))

    first = max(math.floor(index_of(scaling.fast_turns)), 0)
    last = min(math.ceil(index_of(scaling.slow_turns)), head_size - 1)
    width = max(last - first, 0.001)  # one pair may be the whole way
    return [1 - _clip((index - first) / width) for index in range(len(plain))]


def _clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)
