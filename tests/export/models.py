"""Tiny random models. Biases and norms are drawn too, so that none can be left out unseen."""

from __future__ import annotations

from typing import Any

import torch

from model.config import ModelConfig
from model.transformer import Transformer


def make_model(seed: int = 0, **changes: Any) -> Transformer:
    torch.manual_seed(seed)
    values: dict[str, Any] = {
        "architecture": "encoder_decoder",
        "vocab_size": 40,
        "d_model": 16,
        "d_ff": 24,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "max_seq_len": 32,
        "final_bias": True,
    }
    model = Transformer(ModelConfig(**values | changes))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.2)
    return model.eval()


def make_encoder(seed: int = 0, **changes: Any) -> Transformer:
    return make_model(seed, **{"architecture": "encoder", "num_decoder_layers": 0} | changes)
