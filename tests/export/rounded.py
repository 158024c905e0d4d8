"""What an int4 decoder computes, in PyTorch: weights and inputs of every product rounded in blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from export.quantize_blocks import BLOCK_SIZE, Blocks, to_blocks
from model.transformer import Transformer


def rounded_decoder(model: Transformer) -> Transformer:
    """`model`, an architecture without encoder, with the numbers that MatMulNBits multiplies by and with."""
    rounded = _Rounded(dataclasses.replace(model.config, tied_embeddings=False))
    embedding = model.state_dict()["embedding.token.weight"]
    rounded.load_state_dict({"projection.weight": embedding} | model.state_dict())
    with torch.no_grad():
        for module in rounded.modules():
            if isinstance(module, nn.Linear):
                columns = module.weight.detach().numpy().T
                module.weight.copy_(torch.from_numpy(unpacked(to_blocks(columns), len(columns)).T.copy()))
                module.register_forward_pre_hook(lambda _, inputs: (rounded_states(inputs[0]),))
    return rounded.eval()


class _Rounded(Transformer):
    def project(self, states: Tensor) -> Tensor:
        # The projection's weight is taken without a call of its module.
        return super().project(rounded_states(states))


def rounded_states(states: Tensor) -> Tensor:
    """States (...,K) as the operator takes them: of each row, every block in 255 steps of its own."""
    size = states.shape[-1]
    blocks = nn.functional.pad(states, (0, -size % BLOCK_SIZE)).unflatten(-1, (-1, BLOCK_SIZE))
    steps = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    rounded: Tensor = (blocks / steps).round() * steps
    return rounded.flatten(-2)[..., :size]


def unpacked(blocks: Blocks, num_inputs: int) -> NDArray[np.float32]:
    """The matrix (K,N) that the operator multiplies by: low half first, 8 is zero."""
    halves = np.stack([blocks.packed % 16, blocks.packed // 16], axis=-1).astype(np.float32)
    values = (halves.reshape(*blocks.scales.shape, BLOCK_SIZE) - 8) * blocks.scales[..., None]
    return np.ascontiguousarray(values.reshape(len(values), -1)[:, :num_inputs].T)
