"""`python -m model train`: from a TOML file to a trained checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from model.config import ModelConfig
from model.tokenizer import Tokenizer
from model.training.config import TrainingConfig
from model.training.data import build_plan, read_dev, read_source, train_tokenizer
from model.training.reports import Progress
from model.training.trainer import Trainer


def train(config: TrainingConfig, folder: Path, data_root: Path, device: str, progress: Progress) -> Path:
    """Train in `folder`, or take up what stands there; returns the folder of the final checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    languages = config.data.languages
    files = [read_source(source, data_root, languages, progress.note) for source in config.data.train]
    tokenizer = _tokenizer(folder, files, config, progress)
    model = ModelConfig.from_dict({**config.model, "vocab_size": tokenizer.vocab_size})
    plan = build_plan(files, tokenizer, model, config, progress.note)
    dev_sets = {Path(source.path).name.split(".")[0]: read_dev(source, data_root) for source in config.data.dev}
    trainer = Trainer(config, folder, tokenizer, plan, dev_sets, torch.device(device))
    progress.note(f"{trainer.model.num_parameters():,} parameters on {device}, {torch.get_num_threads()} threads")
    trainer.run(progress)
    return folder / "final"


def _tokenizer(folder: Path, files: list, config: TrainingConfig, progress: Progress) -> Tokenizer:  # type: ignore[type-arg]
    path = folder / "tokenizer.json"
    if path.is_file():
        return Tokenizer.load(path)
    progress.note(f"learning a vocabulary of {config.tokenizer.vocab_size} tokens ({config.tokenizer.kind})")
    tokenizer = train_tokenizer(files, config)
    tokenizer.save(path)
    return tokenizer
