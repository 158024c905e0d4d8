"""Starting from another checkpoint: its tokenizer, its embeddings and its encoder layers, or all of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model.checkpoint import Checkpoint, CheckpointError
from model.training.config import InitConfig, TrainingConfig
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


def take_weights(model: Transformer, initial: Checkpoint, config: TrainingConfig) -> dict[str, Any]:
    """Copy what `config.init` names into `model`; returns what its metadata says of where that comes from.

    CheckpointError names every field of the two configurations that does not fit, and a layer that there is not.
    """
    assert config.init is not None
    take = _take_whole if config.init.whole else _take_encoder
    taken = take(model, initial, config.init)
    training = initial.metadata.get("training", {})
    return {"name": initial.metadata.get("name"), **taken, "data": training.get("data", [])}


def _take_whole(model: Transformer, initial: Checkpoint, init: InitConfig) -> dict[str, Any]:
    here, there = model.config.to_dict(), initial.config.to_dict()
    names = [name for name in here if name != "dropout" and here[name] != there[name]]
    _refuse(init, [f"{name} is {there[name]!r} there and {here[name]!r} here" for name in names])
    model.load_state_dict(initial.model.state_dict())
    return {"steps": initial.metadata.get("training", {}).get("steps")}


def _take_encoder(model: Transformer, initial: Checkpoint, init: InitConfig) -> dict[str, Any]:
    num_layers = initial.config.num_encoder_layers
    layers = init.encoder_layers or tuple(range(num_layers))
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
    _refuse(init, problems)
    model.embedding.load_state_dict(initial.model.embedding.state_dict())
    model.encoder_norm.load_state_dict(initial.model.encoder_norm.state_dict())
    for layer, taken in zip(model.encoder_layers, layers, strict=True):
        layer.load_state_dict(initial.model.encoder_layers[taken].state_dict())
    return {"encoder_layers": list(layers)}


def _refuse(init: InitConfig, problems: Sequence[str]) -> None:
    if problems:
        raise CheckpointError(f"the run cannot start from {init.checkpoint}: {'; '.join(problems)}")
