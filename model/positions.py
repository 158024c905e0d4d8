"""Position encodings: added to embeddings or attention scores, or rotating queries and keys."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.config import ModelConfig, Sinusoids
from model.rotary import frequencies


def sinusoids(length: int, width: int, kind: Sinusoids = "interleaved", first: int = 0) -> Tensor:
    """The fixed position table of section 3.5, (length, width), from the place `first` on.

    Sines are in even columns and cosines in odd ones; or in the first half and the second, where in "tensor2tensor" the
    slowest wave is that of exponent one (https://github.com/tensorflow/tensor2tensor).
    """
    steps = width / 2 - 1 if kind == "tensor2tensor" else width / 2
    rates = torch.exp(torch.arange(width // 2) * (-math.log(10_000.0) / steps))
    angles = torch.arange(first, first + length)[:, None] * rates  # (length, width/2)
    if kind == "interleaved":
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


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


def distance_buckets(num_buckets: int, max_distance: int, is_causal: bool) -> Tensor:
    """The bucket of each distance from -max_distance to max_distance, that of the key less that of the query: int64.

    Half of the buckets are for single distances, the others grow with the logarithm. Where not causal, one half is for
    keys before the query and one for those behind it. As in T5, Raffel et al. 2020, https://arxiv.org/abs/1910.10683.
    """
    distances = torch.arange(-max_distance, max_distance + 1)
    first = torch.zeros_like(distances)
    if is_causal:
        distances = -distances.clamp(max=0)
    else:
        num_buckets //= 2
        first[distances > 0] = num_buckets
        distances = distances.abs()
    num_single = num_buckets // 2
    growth = torch.log(distances.clamp(min=1).float() / num_single) / math.log(max_distance / num_single)
    shared = (num_single + (growth * (num_buckets - num_single)).long()).clamp(max=num_buckets - 1)
    return first + torch.where(distances < num_single, distances, shared)


class RelativeBias(nn.Module):
    """A learned number for each head and bucket of distances, to add to the scores of attention."""

    def __init__(self, config: ModelConfig, is_causal: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.relative_buckets, config.num_heads))
        self.max_distance = config.relative_max_distance
        buckets = distance_buckets(config.relative_buckets, config.relative_max_distance, is_causal)
        self.buckets: Tensor
        self.register_buffer("buckets", buckets, persistent=False)

    def forward(self, distances: Tensor) -> Tensor:
        """`distances` (B,T,C), key less query, -> (B,H,T,C)."""
        places = distances.clamp(-self.max_distance, self.max_distance) + self.max_distance
        bias: Tensor = nn.functional.embedding(self.buckets[places], self.weight)
        return bias.permute(0, 3, 1, 2)


class AttentionBias(nn.Module):
    """What the layers of a stack add to the scores of self-attention: relative bias, and the mask of windows."""

    def __init__(self, config: ModelConfig, num_layers: int, is_causal: bool) -> None:
        super().__init__()
        num_tables = {"none": 0, "shared": min(num_layers, 1), "per_layer": num_layers}[config.relative_bias]
        self.tables = nn.ModuleList(RelativeBias(config, is_causal) for _ in range(num_tables))
        self.num_layers, self.window = num_layers, config.attention_window
        self.windowed = frozenset(layer for layer in config.windowed_layers if layer < num_layers)

    def forward(self, positions: Tensor, num_keys: int, dtype: torch.dtype) -> list[Tensor | None]:
        """The bias (B,H,T,C) of each layer, for queries at `positions` (B,T) and keys at 0 to C - 1; B and H may be 1.

        None where there is none. A key outside of a window gets the lowest finite number, so that no row is all -inf.
        """
        if not self.tables and not self.windowed:
            return [None] * self.num_layers
        distances = torch.arange(num_keys, device=positions.device) - positions[:, :, None]  # (B,T,C)
        made: list[Tensor] = [table(distances) for table in self.tables]
        biases: list[Tensor | None] = [
            made[min(layer, len(made) - 1)] if made else None for layer in range(self.num_layers)
        ]
        if self.windowed:
            outside = (distances.abs() > self.window)[:, None].to(dtype) * torch.finfo(torch.float16).min
            for layer in self.windowed:
                bias = biases[layer]
                biases[layer] = outside if bias is None else bias + outside
        return biases


class Place(NamedTuple):
    """The positions of tokens, for the self-attention of one layer."""

    rotation: Rotation | None
    bias: Tensor | None
    """(B,H,T,C), added to the scores; B and H may be 1."""
