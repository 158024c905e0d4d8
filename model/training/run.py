"""`python -m model train`: from a TOML file to a trained checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from model.checkpoint import Checkpoint, load_checkpoint
from model.tokenizer import Tokenizer
from model.training.config import TrainingConfig
from model.training.data import build_plan
from model.training.objectives.base import Objective
from model.training.objectives.causal_lm import CausalLm
from model.training.objectives.contrastive import Contrastive
from model.training.objectives.masked_lm import MaskedLm
from model.training.objectives.translation import Translation
from model.training.reports import Progress
from model.training.resume import last_checkpoint
from model.training.trainer import Trainer

OBJECTIVES: dict[str, type[Objective[Any, Any, Any]]] = {
    "translation": Translation,
    "contrastive": Contrastive,
    "masked_lm": MaskedLm,
    "causal_lm": CausalLm,
}
"""By the `kind` of a configuration's objective."""


def train(config: TrainingConfig, folder: Path, data_root: Path, device: torch.device, progress: Progress) -> Path:
    """Train in `folder`, or resume the run there; returns the folder of the final checkpoint.

    Raises DataError for the data, CheckpointError where what stands there is of another run or the checkpoint to start
    from does not fit, TrainingError where the loss diverges, and Stopped when a signal asked for an end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kind = OBJECTIVES[config.objective.kind]
    initial = _initial(config, folder)
    files = [kind.read(source, config, data_root, progress.note) for source in config.data.train]
    dev = {source.name: kind.read_dev(source, data_root) for source in config.data.dev}
    tokenizer = kind.prepare_tokenizer(_tokenizer(folder, initial, files, config, progress))
    objective = kind(config, tokenizer, config.transformer_config(tokenizer.vocab_size), dev)
    plan = build_plan(files, objective, config, progress.note)
    trainer = Trainer(config, folder, tokenizer, plan, objective, device, initial)
    progress.note(f"{trainer.model.num_parameters():,} parameters on {device}, {torch.get_num_threads()} threads")
    trainer.run(progress)
    return folder / "final"


def _initial(config: TrainingConfig, folder: Path) -> Checkpoint | None:
    """The checkpoint that a new run starts from; a resumed one has it in its weights."""
    if config.init is None or last_checkpoint(folder) is not None:
        return None
    return load_checkpoint(Path(config.init.checkpoint))


def _tokenizer(
    folder: Path, initial: Checkpoint | None, files: Sequence[Any], config: TrainingConfig, progress: Progress
) -> Tokenizer:
    """The tokenizer of the run in the folder; a new run takes that of its checkpoint, or learns its own."""
    checkpoint = last_checkpoint(folder)
    if checkpoint is not None:
        return Tokenizer.load(checkpoint / "tokenizer.json")
    if initial is not None:
        return initial.tokenizer
    progress.note(f"learning a vocabulary of {config.tokenizer.vocab_size} tokens ({config.tokenizer.kind})")
    return OBJECTIVES[config.objective.kind].learn_tokenizer(files, config)
