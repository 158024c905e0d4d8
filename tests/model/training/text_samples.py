"""Tiny runs on running text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from model.data import TextFile
from model.tokenizer import Tokenizer, train
from model.training.config import (
    CausalLmConfig,
    DataConfig,
    MaskedLmConfig,
    TrainingConfig,
    TrainSource,
)
from model.training.data import build_plan
from model.training.run import OBJECTIVES
from model.training.trainer import Trainer
from tests.model.samples import PAIRS, training_config

DOCUMENTS = ["The dog sleeps.\nThe cat eats 12 fish.", "A house", "It is raining today.\nIt was cold yesterday."]
ENCODER = {"architecture": "encoder", "num_decoder_layers": 0}
DECODER = {"architecture": "decoder", "num_encoder_layers": 0}


def text_config(kind: CausalLmConfig | MaskedLmConfig, limit: int = 16, **changes: Any) -> TrainingConfig:
    shape = DECODER if isinstance(kind, CausalLmConfig) else ENCODER
    model = shape | changes.pop("model", {})
    data = DataConfig(("en",), (TrainSource("text.txt"),), (), limit)
    return training_config(objective=kind, model=model, data=data, **changes)


def text_trainer(config: TrainingConfig, folder: Path, tokenizer: Tokenizer, documents: list[str]) -> Trainer:
    kind = OBJECTIVES[config.objective.kind]
    tokenizer = kind.prepare_tokenizer(tokenizer)
    file = TextFile(Path("text.txt"), documents)
    dev = {"text": file}
    objective = kind(config, tokenizer, config.transformer_config(tokenizer.vocab_size), dev)
    plan = build_plan([file], objective, config, lambda text: None)
    plan.round_examples = len(plan.streams[0].examples)
    return Trainer(config, folder, tokenizer, plan, objective, torch.device("cpu"))


def mask_tokenizer() -> Tokenizer:
    """A vocabulary with a mask."""
    return train([*DOCUMENTS, *(text for pair in PAIRS for text in pair)], 400, "bpe", ["<mask>"])
