"""Checkpoints: a folder of safetensors and JSON, never pickle.

    config.json         ModelConfig
    model.safetensors   the weights under the names of Transformer.state_dict()
    tokenizer.json      Hugging Face tokenizers
    pieces.json         the model's ids of its pieces, where they are not the tokenizer's own
    target_tokenizer.json, target_pieces.json    the same of what a decoder writes, where it is not that of the source
    metadata.json       task, languages, directions, training data, licence, scores

A folder is written beside its place and renamed into it, so a killed writer leaves the old one whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.config import ConfigError, ModelConfig
from model.piece_tokenizer import PieceTokenizer
from model.tokenizer import Tokenizer
from model.transformer import Transformer

_TARGET = "target_"


class CheckpointError(ValueError):
    """A checkpoint folder that cannot be used; the message lists everything at fault."""


@dataclass
class Checkpoint:
    """A model with all that it takes to use it. `dtype` is that of the stored weights; it computes in float32."""

    model: Transformer
    tokenizer: Tokenizer
    metadata: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    target_tokenizer: Tokenizer | None = None
    """Of what the decoder writes, where it is not that of what the encoder reads."""

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return self.model.config


def save_checkpoint(
    checkpoint: Checkpoint, folder: Path, extra: Mapping[str, Mapping[str, Tensor]] | None = None
) -> None:
    """Write the checkpoint, replacing one that is there; `extra` maps further safetensors files to their tensors."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    checkpoint.config.save(partial / "config.json")
    weights = {name: tensor.to(checkpoint.dtype).contiguous() for name, tensor in checkpoint.model.state_dict().items()}
    save_file(weights, partial / "model.safetensors")
    _save_tokenizer(checkpoint.tokenizer, partial, "")
    if checkpoint.target_tokenizer is not None:
        _save_tokenizer(checkpoint.target_tokenizer, partial, _TARGET)
    (partial / "metadata.json").write_text(
        json.dumps(checkpoint.metadata, indent=2, ensure_ascii=False) + "\n", "utf-8"
    )
    for name, tensors in (extra or {}).items():
        save_file(dict(tensors), partial / name)
    _replace(partial, folder)


def _save_tokenizer(tokenizer: Tokenizer, folder: Path, prefix: str) -> None:
    tokenizer.save(folder / f"{prefix}tokenizer.json")
    if isinstance(tokenizer, PieceTokenizer):
        tokenizer.save_pieces(folder / f"{prefix}pieces.json")


def _load_tokenizer(folder: Path, prefix: str) -> Tokenizer:
    pieces = folder / f"{prefix}pieces.json"
    if pieces.is_file():
        return PieceTokenizer.load_pieces(folder / f"{prefix}tokenizer.json", pieces)
    return Tokenizer.load(folder / f"{prefix}tokenizer.json")


def _replace(new: Path, folder: Path) -> None:
    old = folder.with_name(folder.name + ".old")
    # Where a writer was killed between the two renames, the old one is the only one: it goes last.
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path, device: str | torch.device = "cpu") -> Checkpoint:
    """Read a checkpoint folder; CheckpointError names every missing file, missing weight and weight too many."""
    names = ("config.json", "model.safetensors", "tokenizer.json", "metadata.json")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder} is not a checkpoint: it lacks {', '.join(missing)}")
    try:
        config = ModelConfig.load(folder / "config.json")
        weights = load_file(folder / "model.safetensors", device=str(device))
        metadata = json.loads((folder / "metadata.json").read_text("utf-8"))
    except (ConfigError, SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    model = Transformer(config).to(device)
    _check_weights(folder, model, weights)
    tokenizer = _load_tokenizer(folder, "")
    target = _load_tokenizer(folder, _TARGET) if (folder / f"{_TARGET}tokenizer.json").is_file() else None
    sizes = (
        (tokenizer, config.vocab_size if target is None else config.num_source_tokens),
        (target, config.vocab_size),
    )
    for found, size in sizes:
        if found is not None and found.vocab_size > size:
            raise CheckpointError(
                f"{folder}: tokenizer.json has {found.vocab_size} tokens, the model's vocab_size is {size}"
            )
    dtypes = {tensor.dtype for tensor in weights.values()}
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    return Checkpoint(model.eval(), tokenizer, metadata, dtype, target)


def _check_weights(folder: Path, model: Transformer, weights: Mapping[str, Tensor]) -> None:
    wanted = model.state_dict()
    problems = [f"missing {name}" for name in wanted if name not in weights]
    problems += [f"not of this model: {name}" for name in weights if name not in wanted]
    problems += [
        f"{name} has the shape {tuple(weights[name].shape)}, the configuration asks for {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if problems:
        raise CheckpointError(f"{folder / 'model.safetensors'}: {'; '.join(problems)}")
