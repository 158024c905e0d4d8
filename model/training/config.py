"""The TOML file that describes a training run."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from model.config import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class TokenizerConfig:
    kind: Literal["bpe", "wordpiece"] = "bpe"
    vocab_size: int = 8000


@dataclass(frozen=True)
class PairSource:
    """A file of sentence pairs, and its part in the mix."""

    path: str
    """Relative to the data folder."""
    weight: float = 1.0
    """How often its pairs are drawn, relative to their number: 2 draws each twice as often as a file of weight 1."""
    from_step: int = 0
    """The step at which it joins; begin with the short and easy, then widen."""
    old_german_spelling: bool = False
    """German from before 1996: brought to the spelling of today."""
    licence: str = ""


@dataclass(frozen=True)
class DevSource:
    path: str
    max_pairs: int = 0
    """Score only this many pairs while training, spread over the file; 0 is all."""


@dataclass(frozen=True)
class DataConfig:
    languages: tuple[str, str]
    """Codes of the first and second column; every pair is trained in both directions."""
    train: tuple[PairSource, ...]
    dev: tuple[DevSource, ...]
    max_tokens: int = 128
    """A pair with a longer side is left out, and counted."""


@dataclass(frozen=True)
class OptimizerConfig:
    kind: Literal["adam", "muon"] = "adam"
    learning_rate: float = 1e-3
    """The peak rate."""
    matrix_learning_rate: float = 0.02
    """The peak rate of the matrices that Muon steers; the other weights follow Adam at `learning_rate`."""
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.0
    schedule: Literal["inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"
    warmup_steps: int = 1000
    cooldown_steps: int = 0
    """The last steps fall linearly to zero, on top of the schedule (Haegele et al. 2024, https://arxiv.org/abs/2405.18392)."""
    max_gradient_norm: float = 1.0


@dataclass(frozen=True)
class TrainingConfig:
    """Everything of a run: it is kept with the checkpoint, and a resumed run must agree on model, tokenizer and seed."""

    name: str
    model: Mapping[str, Any]
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    max_steps: int = 10_000
    max_batch_tokens: int = 4096
    """Padded tokens of the longer side of a batch."""
    micro_batch_tokens: int = 0
    """Compute a batch in parts of this many padded tokens and add the gradients up; 0 is in one piece. On a processor
    the parts run on the cores side by side."""
    label_smoothing: float = 0.1
    average_decay: float = 0.999
    """Exponential moving average of the weights (Polyak and Juditsky 1992), which is what is evaluated and kept; 0 is off."""
    seed: int = 1
    evaluate_every_steps: int = 1000
    save_every_seconds: float = 120.0
    autocast: Literal["auto", "bf16", "off"] = "auto"
    compile: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Copied into the checkpoint's metadata: licence, description."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def load_training_config(path: Path) -> TrainingConfig:
    """Read a TOML file; ConfigError names the field at fault."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    values = dict(values)
    data = dict(_section(values, "data"))
    data["languages"] = tuple(data.get("languages", ()))
    if len(data["languages"]) != 2:
        raise ConfigError(f"data.languages is {list(data['languages'])}, it must be two codes")
    data["train"] = tuple(_build(PairSource, item, "data.train") for item in data.get("train", ()))
    data["dev"] = tuple(_build(DevSource, item, "data.dev") for item in data.get("dev", ()))
    if not data["train"]:
        raise ConfigError("data.train names no file")
    optimizer = dict(_section(values, "optimizer"))
    optimizer["betas"] = tuple(optimizer.get("betas", (0.9, 0.98)))
    values["data"] = _build(DataConfig, data, "data")
    values["optimizer"] = _build(OptimizerConfig, optimizer, "optimizer")
    values["tokenizer"] = _build(TokenizerConfig, _section(values, "tokenizer"), "tokenizer")
    config = _build(TrainingConfig, values, "the file")
    _check_choices(config)
    return config


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name, {})
    if not isinstance(section, Mapping):
        raise ConfigError(f"[{name}] must be a table")
    return section


def _build(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    names = [item.name for item in dataclasses.fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ConfigError(f"{where} has unknown fields: {', '.join(unknown)}; known: {', '.join(names)}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_choices(config: TrainingConfig) -> None:
    choices = {
        "optimizer.kind": (config.optimizer.kind, ("adam", "muon")),
        "optimizer.schedule": (config.optimizer.schedule, ("inverse_sqrt", "cosine", "constant")),
        "tokenizer.kind": (config.tokenizer.kind, ("bpe", "wordpiece")),
        "autocast": (config.autocast, ("auto", "bf16", "off")),
    }
    problems = [f"{name} is {value!r}, allowed: {', '.join(ok)}" for name, (value, ok) in choices.items() if value not in ok]
    positive = {"max_steps": config.max_steps, "max_batch_tokens": config.max_batch_tokens}
    problems += [f"{name} is {value!r}, it must be at least 1" for name, value in positive.items() if value < 1]
    if not 0.0 <= config.average_decay < 1.0:
        problems.append(f"average_decay is {config.average_decay!r}, allowed: 0 <= average_decay < 1")
    if problems:
        raise ConfigError("; ".join(problems))
