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

from model.config import Architecture, ConfigError, ModelConfig
from model.corpus.augmentation import Augmentation

_NO_OTHER_FIELDS = ConfigDict(extra="forbid", allow_inf_nan=False)

AtLeastOne = Annotated[int, Field(ge=1)]
AtLeastZero = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class TokenizerConfig:
    """The vocabulary, learned from the training texts of all languages; `init` brings its own instead."""

    kind: Literal["bpe", "wordpiece"] = "bpe"
    vocab_size: AtLeastOne = 8000


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class TranslationConfig:
    """Translate each column into the other."""

    kind: Literal["translation"] = "translation"
    bpe_dropout: Share = 0.0
    """The chance that a merge of pieces is left out, so that words come in other pieces each time; 0.1 is usual."""
    r_drop: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """Compute each batch twice, under different dropout, and pull the two together: the weight of their divergence.
    Liang et al. 2021, https://arxiv.org/abs/2106.14448. A step takes twice the time."""
    guided_alignment: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """Train a head to align words by the `links` of the files: the weight of its loss, 0.05 is usual."""
    guided_head: AtLeastZero = 0
    """Which head of the next-to-last decoder layer, or of the only one."""


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class ContrastiveConfig:
    """Bring the vectors of a pair together and those of different pairs apart."""

    kind: Literal["contrastive"] = "contrastive"
    temperature: Positive = 0.05
    """Cosines are divided by it before the softmax: the lower, the more the nearest negatives count."""


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class CausalLmConfig:
    """Tell each token of running text from those before it."""

    kind: Literal["causal_lm"] = "causal_lm"


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class MaskedLmConfig:
    """Tell tokens that were hidden from those around them."""

    kind: Literal["masked_lm"] = "masked_lm"
    masked_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    mask_token: str = "<mask>"
    """Stands for a hidden token; a vocabulary learned here has it, one that `init` brings may have another."""


Objective = TranslationConfig | ContrastiveConfig | CausalLmConfig | MaskedLmConfig


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class InitConfig:
    """Another checkpoint that a new run starts from: its tokenizer, embeddings and encoder layers, or all of it."""

    checkpoint: str
    """Its folder, relative to where the command is run; `--init` names another."""
    encoder_layers: tuple[AtLeastZero, ...] = ()
    """Which of its layers, counted from 0, become the encoder; none named is all of them."""
    whole: bool = False
    """Take every weight, the decoder's too, and so learn on: the two models may differ in nothing but dropout."""


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class TrainSource:
    """A file of training text, and its part in the mix."""

    path: str
    """Relative to the data folder."""
    weight: Positive = 1.0
    """How often its lines are drawn, relative to their number: 2 draws each twice as often as a file of weight 1."""
    from_step: AtLeastZero = 0
    """The step at which it joins; begin with the short and easy, then widen."""
    old_german_spelling: bool = False
    """German from before 1996: brought to the spelling of today."""
    min_score: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The file has three columns, score, sentence, sentence; the pairs from this score up are taken."""
    direction: Literal["both", "there", "back"] = "both"
    """Of translation: from the first language to the second, back, or both; distilled pairs have one true side."""
    links: str = ""
    """Of translation: a file with a line for each pair, the linked words as "0-0 1-2"; `python -m model align` writes
    it."""
    licence: str = ""


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class DevSource:
    """A file that the model is scored on."""

    path: str
    """Relative to the data folder."""
    max_pairs: AtLeastZero = 0
    """Score only this many lines while training, spread over the file, or the first of a running text; 0 is all."""

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return Path(self.path).name.split(".")[0]


@dataclass(frozen=True, config=_NO_OTHER_FIELDS)
class DataConfig:
    """What is learned from, and what is scored."""

    languages: Annotated[tuple[str, ...], Field(min_length=1)]
    """Codes of the first and second column of pairs; a translation pair is trained in both directions."""
    train: Annotated[tuple[TrainSource, ...], Field(min_length=1)]
    dev: tuple[DevSource, ...] = ()
    max_tokens: AtLeastOne = 128
    """A pair with a longer side is left out, and counted; running text is cut into blocks of this many."""
    augmentation: Augmentation = Augmentation()
    """Of the translation objective: pairs changed and added, anew each time they come."""


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
    objective: Annotated[Objective, Field(discriminator="kind")] = TranslationConfig()
    init: InitConfig | None = None
    tokenizer: TokenizerConfig = TokenizerConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    max_steps: AtLeastOne = 10_000
    max_batch_tokens: AtLeastOne = 4096
    """Padded tokens of the longer side of a batch."""
    micro_batch_tokens: AtLeastZero = 0
    """Compute a batch in parts of this many padded tokens and add the gradients up; 0 is in one piece. On a processor
    the parts run on the cores side by side. A contrastive pair's negatives are those of its part."""
    label_smoothing: Share = 0.1
    """Of the translation objective."""
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


_ARCHITECTURES: dict[str, Architecture] = {
    "translation": "encoder_decoder",
    "contrastive": "encoder",
    "masked_lm": "encoder",
    "causal_lm": "decoder",
}
_TWO_LANGUAGES = ("translation", "contrastive")


def _cross_problems(config: TrainingConfig) -> list[str]:
    problems = [*_model_problems(config), *_data_problems(config.data)]
    kind, languages = config.objective.kind, config.data.languages
    if kind in _TWO_LANGUAGES and (len(languages) != 2 or languages[0] == languages[1]):
        problems.append(f"data.languages is {list(languages)}, it must be two different codes")
    if config.max_batch_tokens < config.data.max_tokens:
        problems.append(
            f"max_batch_tokens is {config.max_batch_tokens}, below data.max_tokens {config.data.max_tokens}"
        )
    problems += _translation_problems(config)
    problems += [f"data.augmentation: {text}" for text in config.data.augmentation.problems(languages)]
    if kind != "translation" and not config.data.augmentation.is_off:
        problems.append(f"data.augmentation is given, which objective {kind!r} has no use for")
    if kind != "contrastive":
        scored = [source.path for source in config.data.train if source.min_score is not None]
        problems += [f"data.train: {path} has a min_score, which objective {kind!r} has no use for" for path in scored]
    return problems


def _translation_problems(config: TrainingConfig) -> list[str]:
    objective = config.objective
    if not isinstance(objective, TranslationConfig):
        sources = [source for source in config.data.train if source.links or source.direction != "both"]
        return [
            f"data.train: {source.path} has links or a direction, which only translation uses" for source in sources
        ]
    problems = []
    if objective.r_drop and not config.model.get("dropout", ModelConfig.dropout):
        problems.append(f"objective.r_drop is {objective.r_drop:g}, which needs model.dropout above 0")
    if objective.guided_alignment and not any(source.links for source in config.data.train):
        problems.append("objective.guided_alignment is set, but no file of data.train has links")
    num_heads = config.model.get("num_heads", ModelConfig.num_heads)
    if objective.guided_head >= num_heads:
        problems.append(f"objective.guided_head is {objective.guided_head}, allowed: 0 to {num_heads - 1}")
    if objective.bpe_dropout and config.tokenizer.kind != "bpe":
        problems.append(f"objective.bpe_dropout is set, but tokenizer.kind is {config.tokenizer.kind!r}")
    return problems


def _model_problems(config: TrainingConfig) -> list[str]:
    if "vocab_size" in config.model:
        return ["model.vocab_size is set: it is the tokenizer that decides"]
    try:
        model = config.transformer_config(config.tokenizer.vocab_size)
    except ConfigError as error:
        return [f"model: {error}"]
    problems = []
    kind = config.objective.kind
    wanted = _ARCHITECTURES[kind]
    if model.architecture != wanted:
        problems.append(f"model.architecture is {model.architecture!r}, objective {kind!r} needs {wanted!r}")
    if config.init and config.init.whole:
        if config.init.encoder_layers:
            problems.append(
                f"init.encoder_layers is {list(config.init.encoder_layers)}, init.whole takes all: leave one out"
            )
    elif config.init and not model.num_encoder_layers:
        problems.append(
            f"model.architecture is {model.architecture!r}: init takes encoder layers, or all with init.whole = true"
        )
    elif config.init and config.init.encoder_layers and len(config.init.encoder_layers) != model.num_encoder_layers:
        problems.append(
            f"init.encoder_layers is {list(config.init.encoder_layers)}, "
            f"it must name as many layers as model.num_encoder_layers, {model.num_encoder_layers}"
        )
    return problems


def _data_problems(data: DataConfig) -> list[str]:
    problems = []
    if all(source.from_step > 0 for source in data.train):
        problems.append("data.train: every file has a from_step, so there is none to begin with")
    paths, names = [source.path for source in data.train], [source.name for source in data.dev]
    twice = sorted({name for listed in (paths, names) for name in listed if listed.count(name) > 1})
    if twice:
        problems.append(f"data names a file twice: {', '.join(twice)}")
    return problems
