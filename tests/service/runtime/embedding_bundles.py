"""Tiny embedding models with random weights, and the bundles that they are exported to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from export.bundle import Bundle, load_bundle
from export.convert import ExportOptions, export_bundle
from model.checkpoint import Checkpoint
from model.config import ModelConfig
from model.tokenizer import train
from model.transformer import Transformer

MAX_TOKENS = 48


def make_encoder(**changes: Any) -> Transformer:
    """As BERT has it, and with norms and biases drawn too, so that none can be left out unseen."""
    torch.manual_seed(3)
    values: dict[str, Any] = {
        "vocab_size": 300,
        "d_model": 32,
        "d_ff": 64,
        "num_heads": 4,
        "num_encoder_layers": 2,
        "max_seq_len": MAX_TOKENS,
        "positions": "learned",
        "norm_order": "post",
        "activation": "gelu",
        "scale_embeddings": False,
        "embedding_norm": True,
        "num_token_types": 2,
    }
    model = Transformer(ModelConfig("encoder", **values | changes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(mean=float("norm.weight" in name), std=0.2)
            else:
                parameter.mul_(1.7)
    return model.eval()


def export_encoder(
    model: Transformer, folder: Path, precisions: tuple[str, ...] = ("fp32",), **embedding: Any
) -> Bundle:
    section = {"pooling": "mean", "normalize": True, "max_input_tokens": MAX_TOKENS} | embedding
    tokenizer = train(["a b c"], 280).with_end()
    export_bundle(
        Checkpoint(model, tokenizer, {"task": "embed", "embedding": section}),
        folder,
        ExportOptions(precisions=precisions),
    )
    return load_bundle(folder)
