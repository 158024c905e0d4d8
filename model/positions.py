"""Where a token stands: a table of sinusoids to add to the embeddings, or one of angles that every layer turns by."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.rotary import frequencies


def sinusoids(length: int, width: int) -> Tensor:
    """The fixed position table of section 3.5: (length, width), sines in even columns and cosines in odd ones."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates  # (length, width/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class Rotation(NamedTuple):
    """What every layer rotates its queries and keys by: tables of N angles, (N,D/2), and the tokens' places, (B,T)."""

    cosines: Tensor
    sines: Tensor
    positions: Tensor


class RotaryTable(nn.Module):
    """The angles of rotary positions: (B,T) positions -> what the layers rotate by."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        speeds = frequencies(config.head_size, config.rotary_base, config.rotary_scaling)
        # In double precision, because an angle is a large number of which only the last turn counts.
        angles = torch.arange(config.max_seq_len)[:, None] * torch.tensor(speeds, dtype=torch.float64)  # (N,D/2)
        factor = config.rotary_scaling.attention_factor
        self.cosines: Tensor
        self.sines: Tensor
        self.register_buffer("cosines", (angles.cos() * factor).float(), persistent=False)
        self.register_buffer("sines", (angles.sin() * factor).float(), persistent=False)

    def forward(self, positions: Tensor) -> Rotation:
        return Rotation(self.cosines, self.sines, positions)
