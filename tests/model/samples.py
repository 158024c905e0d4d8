"""Tiny random models and tiny training runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from model.checkpoint import Checkpoint
from model.config import ModelConfig
from model.data import PairFile
from model.tokenizer import Tokenizer, language_tag, train
from model.training.config import DataConfig, OptimizerConfig, TokenizerConfig, TrainingConfig, TrainSource
from model.training.data import build_plan
from model.training.run import OBJECTIVES
from model.training.trainer import Trainer
from model.transformer import Transformer

PAIRS = [
    ("The dog sleeps.", "Der Hund schläft."),
    ("The cat sleeps.", "Die Katze schläft."),
    ("The dog eats the bread.", "Der Hund frisst das Brot."),
    ("The cat drinks the milk.", "Die Katze trinkt die Milch."),
    ("I see a house.", "Ich sehe ein Haus."),
    ("I see two trees.", "Ich sehe zwei Bäume."),
    ("We live in a big city.", "Wir wohnen in einer großen Stadt."),
    ("She reads a book.", "Sie liest ein Buch."),
    ("He writes a letter to his sister.", "Er schreibt einen Brief an seine Schwester."),
    ("Where is the station?", "Wo ist der Bahnhof?"),
    ("What time is it?", "Wie spät ist es?"),
    ("It is raining today.", "Heute regnet es."),
    ("It was cold yesterday.", "Gestern war es kalt."),
    ("Tomorrow we go to the sea.", "Morgen fahren wir ans Meer."),
    ("The children play in the garden.", "Die Kinder spielen im Garten."),
    ("My brother has three cars.", "Mein Bruder hat drei Autos."),
    ("Good morning!", "Guten Morgen!"),
    ("Thank you very much.", "Vielen Dank."),
    ("I do not know.", "Ich weiß es nicht."),
    ("The train is late again.", "Der Zug hat wieder Verspätung."),
]
"""Twenty, in English and German."""


def make_config(**changes: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "architecture": "encoder_decoder",
        "vocab_size": 24,
        "d_model": 16,
        "d_ff": 24,
        "num_heads": 2,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "max_seq_len": 32,
    }
    values |= {
        "decoder": {"architecture": "decoder", "num_encoder_layers": 0},
        "encoder": {"architecture": "encoder", "num_decoder_layers": 0},
    }.get(changes.get("architecture", ""), {})
    return ModelConfig(**values | changes)


def make_model(seed: int = 0, **changes: Any) -> Transformer:
    """A random model in evaluation mode; biases and norms are drawn too, so that none can be left out unseen."""
    torch.manual_seed(seed)
    model = Transformer(make_config(**changes))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
        else:
            torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def random_rows(lengths: Sequence[int], vocab_size: int = 24, seed: int = 0) -> list[list[int]]:
    """Rows of ordinary token ids, of the lengths given."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def pair_file(pairs: Sequence[tuple[str, str]] = PAIRS) -> PairFile:
    return PairFile(Path("pairs.tsv"), list(pairs))


def tiny_tokenizer(pairs: Sequence[tuple[str, str]] = PAIRS, vocab_size: int = 360) -> Tokenizer:
    return train((text for pair in pairs for text in pair), vocab_size, "bpe", [language_tag("de"), language_tag("en")])


def training_config(**changes: Any) -> TrainingConfig:
    """Ten steps of a model that fits in the hand; `model` and `optimizer` are merged into their defaults."""
    model = {
        "architecture": "encoder_decoder",
        "d_model": 16,
        "d_ff": 32,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "max_seq_len": 64,
        "dropout": 0.0,
    } | changes.pop("model", {})
    optimizer = {"kind": "muon", "warmup_steps": 2} | changes.pop("optimizer", {})
    values: dict[str, Any] = {
        "name": "tiny",
        "model": model,
        "optimizer": OptimizerConfig(**optimizer),
        "tokenizer": TokenizerConfig(vocab_size=360),
        "data": DataConfig(("en", "de"), (TrainSource("pairs.tsv"),), (), 64),
        "max_steps": 10,
        "max_batch_tokens": 256,
        "save_every_seconds": 1e9,
        "evaluate_every_steps": 1000,
        "autocast": "off",
    }
    return TrainingConfig(**values | changes)


def make_trainer(
    config: TrainingConfig,
    folder: Path,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]] = PAIRS,
    report: Callable[[str], None] = lambda text: None,
    initial: Checkpoint | None = None,
) -> Trainer:
    """A trainer of one file of pairs, as `model.training.run` makes it."""
    kind = OBJECTIVES[config.objective.kind]
    tokenizer = kind.prepare_tokenizer(tokenizer)
    objective = kind(config, tokenizer, config.transformer_config(tokenizer.vocab_size), {})
    plan = build_plan([pair_file(pairs)], objective, config, report)
    return Trainer(config, folder, tokenizer, plan, objective, torch.device("cpu"), initial)
