"""`python -m model train`: from a TOML file to a trained checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from model.data import PairFile
from model.tokenizer import Tokenizer
from model.training.config import TrainingConfig
from model.training.data import build_plan, read_dev, read_source, train_tokenizer
from model.training.reports import Progress
from model.training.resume import last_checkpoint
from model.training.trainer import Trainer


def train(config: TrainingConfig, folder: Path, data_root: Path, device: torch.device, progress: Progress) -> Path:
    """Train in `folder`, or take up what stands there; returns the folder of the final checkpoint.

    Raises DataError for the data, CheckpointError where what stands there is of another run, TrainingError where the
    loss diverges, and Stopped when a signal asked for an end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    languages = config.data.languages
    files = [read_source(source, data_root, languages, progress.note) for source in config.data.train]
    dev_sets = {source.name: read_dev(source, data_root) for source in config.data.dev}
    tokenizer = _tokenizer(folder, files, config, progress)
    model = config.transformer_config(tokenizer.vocab_size)
    plan = build_plan(files, tokenizer, model, config, progress.note)
    trainer = Trainer(config, folder, tokenizer, plan, dev_sets, device)
    progress.note(f"{trainer.model.num_parameters():,} parameters on {device}, {torch.get_num_threads()} threads")
    trainer.run(progress)
    return folder / "final"


def _tokenizer(folder: Path, files: Sequence[PairFile], config: TrainingConfig, progress: Progress) -> Tokenizer:
    """The tokenizer of the run that stands in the folder; a new run learns its own."""
    checkpoint = last_checkpoint(folder)
    if checkpoint is not None:
        return Tokenizer.load(checkpoint / "tokenizer.json")
    progress.note(f"learning a vocabulary of {config.tokenizer.vocab_size} tokens ({config.tokenizer.kind})")
    return train_tokenizer(files, config)
