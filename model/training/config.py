"""The TOML file that describes a training run."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from model.config import ConfigError, ModelConfig

_NO_OTHER_FIELDS = ConfigDict(extra="forbid", allow_inf_nan=False)

AtLeastOne = Annotated[int, Field(ge=1)]
AtLeastZero = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class TokenizerConfig:
    """The vocabulary, learned from the training pairs of both languages."""

    kind: Literal["bpe", "wordpiece"] = "bpe"
    vocab_size: AtLeastOne = 8000


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class PairSource:
    """A file of sentence pairs, and its part in the mix."""

    path: str
    """Relative to the data folder."""
    weight: Positive = 1.0
    """How often its pairs are drawn, relative to their number: 2 draws each twice as often as a file of weight 1."""
    from_step: AtLeastZero = 0
    """The step at which it joins; begin with the short and easy, then widen."""
    old_german_spelling: bool = False
    """German from before 1996: brought to the spelling of today."""
    licence: str = ""


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class DevSource:
    """A file of sentence pairs that is translated and scored."""

    path: str
    """Relative to the data folder."""
    max_pairs: AtLeastZero = 0
    """Score only this many pairs while training, spread over the file; 0 is all."""

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return Path(self.path).name.split(".")[0]


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class DataConfig:
    """What is learned from, and what is scored."""

    languages: tuple[str, str]
    """Codes of the first and second column; every pair is trained in both directions."""
    train: Annotated[tuple[PairSource, ...], Field(min_length=1)]
    dev: tuple[DevSource, ...] = ()
    max_tokens: AtLeastOne = 128
    """A pair with a longer side is left out, and counted."""


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class OptimizerConfig:
    """How weights follow gradients; see `model.training.optimizers`."""

    kind: Literal["adam", "muon"] = "adam"
    learning_rate: Positive = 1e-3
    """The peak rate."""
    matrix_learning_rate: Positive = 0.02
    """The peak rate of the matrices that Muon steers; the other weights follow Adam at `learning_rate`."""
    betas: tuple[Share, Share] = (0.9, 0.98)
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    schedule: Literal["inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"
    warmup_steps: AtLeastZero = 1000
    cooldown_steps: AtLeastZero = 0
    """The last steps fall linearly to zero, on top of the schedule: Haegele et al. 2024, https://arxiv.org/abs/2405.18392."""
    max_gradient_norm: Positive = 1.0


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class TrainingConfig:
    """Everything of a run, kept with its checkpoint; `model.training.resume` says what may change between starts."""

    name: str
    model: Mapping[str, Any]
    """The fields of a ModelConfig but for `vocab_size`, which the tokenizer knows."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    max_steps: AtLeastOne = 10_000
    max_batch_tokens: AtLeastOne = 4096
    """Padded tokens of the longer side of a batch."""
    micro_batch_tokens: AtLeastZero = 0
    """Compute a batch in parts of this many padded tokens and add the gradients up; 0 is in one piece. On a processor
    the parts run on the cores side by side."""
    label_smoothing: Share = 0.1
    average_decay: Share = 0.999
    """Moving average of the weights (Polyak and Juditsky 1992), exponential, which is scored and kept; 0 is off."""
    seed: AtLeastZero = 1
    evaluate_every_steps: AtLeastOne = 1000
    save_every_seconds: Annotated[float, Field(ge=0.0)] = 120.0
    autocast: Literal["auto", "bf16", "off"] = "auto"
    """Multiply in bfloat16; auto does where the device has instructions for it."""
    final_dtype: Literal["float32", "float16"] = "float32"
    """The type of the final checkpoint's weights; a bundle keeps it, so float16 halves what is shipped."""
    compile: bool = False
    """Compile the loss by torch.compile; on a processor that takes a C++ compiler."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Copied into the checkpoint's metadata: licence, description."""

    def transformer_config(self, vocab_size: int) -> ModelConfig:
        """The model to train, once its vocabulary is known."""
        return ModelConfig.from_dict({**self.model, "vocab_size": vocab_size})

    def to_dict(self) -> dict[str, Any]:
        """All fields, defaults too."""
        return dataclasses.asdict(self)


def load_training_config(path: Path) -> TrainingConfig:
    """Read a TOML file; ConfigError names every field at fault."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        config = TypeAdapter(TrainingConfig).validate_python(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {'; '.join(map(_problem, error.errors()))}") from error
    problems = _cross_problems(config)
    if problems:
        raise ConfigError(f"{path}: {'; '.join(problems)}")
    return config


def _problem(details: Mapping[str, Any]) -> str:
    name = ".".join(map(str, details["loc"]))
    if details["type"] in ("missing", "unexpected_keyword_argument"):
        return f"{name}: {'is missing' if details['type'] == 'missing' else 'is no field of a training configuration'}"
    return f"{name} is {details['input']!r}: {details['msg'][0].lower()}{details['msg'][1:]}"


def _cross_problems(config: TrainingConfig) -> list[str]:
    problems = []
    if "vocab_size" in config.model:
        problems.append("model.vocab_size is set: it is tokenizer.vocab_size that decides")
    else:
        try:
            model = config.transformer_config(config.tokenizer.vocab_size)
        except ConfigError as error:
            problems.append(f"model: {error}")
        else:
            if model.architecture != "encoder_decoder":
                problems.append(f"model.architecture is {model.architecture!r}, pairs need 'encoder_decoder'")
    if len(set(config.data.languages)) != 2:
        problems.append(f"data.languages is {list(config.data.languages)}, it must be two different codes")
    if config.max_batch_tokens < config.data.max_tokens:
        problems.append(
            f"max_batch_tokens is {config.max_batch_tokens}, below data.max_tokens {config.data.max_tokens}"
        )
    if all(source.from_step > 0 for source in config.data.train):
        problems.append("data.train: every file has a from_step, so there is none to begin with")
    paths, names = [source.path for source in config.data.train], [source.name for source in config.data.dev]
    twice = sorted({name for listed in (paths, names) for name in listed if listed.count(name) > 1})
    if twice:
        problems.append(f"data names a file twice: {', '.join(twice)}")
    return problems
