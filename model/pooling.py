"""From one vector a token to one vector a text."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Pooling = Literal["cls", "mean", "last_token"]


def pool(states: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """`states` (B,S,E), of which `lengths` (B) are real, -> (B,E).

    `cls` is the first token's vector, as in BERT; `mean` that of all real tokens (Reimers and Gurevych 2019,
    https://arxiv.org/abs/1908.10084); `last_token` that of the last real one, which alone has read the whole text where
    attention is causal.
    """
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last_token":
        return states[torch.arange(states.shape[0], device=states.device), lengths - 1]
    positions = torch.arange(states.shape[1], device=states.device)
    shares = (positions < lengths[:, None]).to(states.dtype) / lengths[:, None].to(states.dtype)  # (B,S)
    return (shares[:, None] @ states)[:, 0]
