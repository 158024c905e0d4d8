"""Starting from another checkpoint: its tokenizer, its embeddings and its encoder layers, or some of them."""

from __future__ import annotations

from typing import Any

from model.checkpoint import Checkpoint, CheckpointError
from model.training.config import TrainingConfig
from model.transformer import Transformer

_SAME_FIELDS = (
    "vocab_size",
    "d_model",
    "d_ff",
    "num_heads",
    "positions",
    "norm_order",
    "activation",
    "norm_eps",
    "scale_embeddings",
    "embedding_norm",
    "num_token_types",
    "pad_id",
    "eos_id",
)
"""What must be the same for the weights to mean the same."""


def take_encoder(model: Transformer, initial: Checkpoint, config: TrainingConfig) -> dict[str, Any]:
    """Copy embeddings and encoder layers into `model`; returns what its metadata says of where they come from.

    CheckpointError names every field of the two configurations that does not fit, and a layer that there is not.
    """
    assert config.init is not None
    num_layers = initial.config.num_encoder_layers
    layers = config.init.encoder_layers or tuple(range(num_layers))
    problems = [
        f"{name} is {getattr(initial.config, name)!r} there and {getattr(model.config, name)!r} here"
        for name in _SAME_FIELDS
        if getattr(initial.config, name) != getattr(model.config, name)
    ]
    missing = [layer for layer in layers if layer >= num_layers]
    if missing:
        problems.append(f"it has no encoder layers {missing}, allowed: 0 to {num_layers - 1}")
    if len(layers) != model.config.num_encoder_layers:
        problems.append(
            f"{len(layers)} encoder layers would be taken, num_encoder_layers is {model.config.num_encoder_layers}: "
            "name them in init.encoder_layers"
        )
    if model.config.positions == "learned" and initial.config.max_seq_len != model.config.max_seq_len:
        problems.append(f"max_seq_len is {initial.config.max_seq_len} there and {model.config.max_seq_len} here")
    if problems:
        raise CheckpointError(f"the run cannot start from {config.init.checkpoint}: {'; '.join(problems)}")
    model.embedding.load_state_dict(initial.model.embedding.state_dict())
    model.encoder_norm.load_state_dict(initial.model.encoder_norm.state_dict())
    for layer, taken in zip(model.encoder_layers, layers, strict=True):
        layer.load_state_dict(initial.model.encoder_layers[taken].state_dict())
    return {
        "name": initial.metadata.get("name"),
        "encoder_layers": list(layers),
        "data": initial.metadata.get("training", {}).get("data", []),
    }
