"""The configuration of a transformer: frozen, self-validating, JSON in and out, free of torch."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from model.rotary import NO_SCALING, RotaryScaling

Architecture = Literal["encoder_decoder", "encoder", "decoder"]
Positions = Literal["sinusoidal", "learned", "rotary"]
Norm = Literal["layer", "rms"]
NormOrder = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "architecture": get_args(Architecture),
    "positions": get_args(Positions),
    "norm": get_args(Norm),
    "norm_order": get_args(NormOrder),
    "activation": get_args(Activation),
}
# By the annotation's text, which is what dataclasses see of it. An int is a float to JSON, but a bool is no int.
_TYPES: dict[Any, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "RotaryScaling": (RotaryScaling,),
}
_TYPE_NAMES: dict[Any, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "RotaryScaling": f"an object with any of {', '.join(field.name for field in dataclasses.fields(RotaryScaling))}",
}


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names every field at fault, its value and what is allowed."""


@dataclass(frozen=True)
class ModelConfig:
    """What defines a transformer's shape and arithmetic.

    The defaults are the "base" model of Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, table 3, except that the
    norm comes before each sub-layer (Xiong et al. 2020, https://arxiv.org/abs/2002.04745), which trains without care.
    """

    architecture: Architecture
    vocab_size: int
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    num_kv_heads: int = 0
    """Heads of keys and values, each shared by num_heads / num_kv_heads query heads; 0 is one for each. Grouped-query
    attention: Ainslie et al. 2023, https://arxiv.org/abs/2305.13245."""
    head_dim: int = 0
    """D, where it is not d_model / num_heads, which 0 stands for."""
    num_encoder_layers: int = 0
    num_decoder_layers: int = 0
    max_seq_len: int = 512
    positions: Positions = "sinusoidal"
    rotary_base: float = 10_000.0
    """The slowest pair of a head turns nearly so many times slower than the fastest."""
    rotary_scaling: RotaryScaling = NO_SCALING
    norm: Norm = "layer"
    norm_order: NormOrder = "pre"
    activation: Activation = "relu"
    gated_feed_forward: bool = False
    """Multiply the activation by a second projection: Shazeer 2020, https://arxiv.org/abs/2002.05202."""
    query_key_value_bias: bool = True
    attention_output_bias: bool = True
    feed_forward_bias: bool = True
    query_key_norm: bool = False
    """A norm over each head of queries and keys: Dehghani et al. 2023, https://arxiv.org/abs/2302.05442."""
    dropout: float = 0.1
    norm_eps: float = 1e-5
    scale_embeddings: bool = True
    """Multiply token embeddings by sqrt(d_model), section 3.4 of the paper; BERT and GPT do not."""
    embedding_norm: bool = False
    """A norm over the sum of the embeddings, as in BERT."""
    num_token_types: int = 0
    """Kinds of token with an embedding of their own: 2 in BERT, the first text and the second; 0 is none."""
    tied_embeddings: bool = True
    """The output projection is the transposed embedding (Press and Wolf 2017, https://arxiv.org/abs/1608.05859)."""
    final_bias: bool = True
    """A bias on the logits."""
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        # The rules that compare fields read only fields of the right type.
        problems = self._type_problems() or self._value_problems()
        if problems:
            raise ConfigError("; ".join(problems))

    def _type_problems(self) -> list[str]:
        problems = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _CHOICES:
                if value not in _CHOICES[field.name]:
                    problems.append(f"{field.name} is {value!r}, allowed: {', '.join(_CHOICES[field.name])}")
            elif not isinstance(value, _TYPES[field.type]) or (isinstance(value, bool) and field.type != "bool"):
                problems.append(f"{field.name} is {value!r}, it must be {_TYPE_NAMES[field.type]}")
        return problems

    def _value_problems(self) -> list[str]:
        problems = [
            f"{name} is {getattr(self, name)}, it must be at least 1"
            for name in ("vocab_size", "d_model", "d_ff", "num_heads", "max_seq_len")
            if getattr(self, name) < 1
        ]
        problems += self._layer_problems()
        problems += self._attention_problems()
        problems += [
            f"{name} is {getattr(self, name)}, allowed: 0 to vocab_size - 1"
            for name in ("pad_id", "bos_id", "eos_id")
            if not 0 <= getattr(self, name) < self.vocab_size
        ]
        if self.positions == "sinusoidal" and self.d_model % 2:
            problems.append(f"d_model {self.d_model} is odd; sinusoidal positions need an even one")
        if self.num_token_types < 0:
            problems.append(f"num_token_types is {self.num_token_types}, it must be at least 0")
        if self.num_token_types > 0 and self.architecture != "encoder":
            problems.append(f"num_token_types is {self.num_token_types}, it must be 0 for {self.architecture!r}")
        if not 0.0 <= self.dropout < 1.0:
            problems.append(f"dropout is {self.dropout}, allowed: 0 <= dropout < 1")
        if not 0.0 < self.norm_eps < math.inf:
            problems.append(f"norm_eps is {self.norm_eps}, it must be positive")
        return problems

    def _layer_problems(self) -> list[str]:
        problems = []
        for name, unwanted_in in (("num_encoder_layers", "decoder"), ("num_decoder_layers", "encoder")):
            value = getattr(self, name)
            if self.architecture == unwanted_in and value != 0:
                problems.append(f"{name} is {value}, it must be 0 for architecture {self.architecture!r}")
            elif self.architecture != unwanted_in and value < 1:
                problems.append(f"{name} is {value}, it must be at least 1 for architecture {self.architecture!r}")
        return problems

    def _attention_problems(self) -> list[str]:
        problems = [
            f"{name} is {getattr(self, name)}, it must be at least 0"
            for name in ("num_kv_heads", "head_dim")
            if getattr(self, name) < 0
        ]
        if problems or self.num_heads < 1:
            return problems
        if not self.head_dim and self.d_model % self.num_heads:
            problems.append(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
        if self.num_kv_heads and self.num_heads % self.num_kv_heads:
            problems.append(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.positions == "rotary":
            if self.head_size % 2:
                problems.append(f"the head size {self.head_size} is odd; rotary positions need an even one")
            if not 1.0 < self.rotary_base < math.inf:
                problems.append(f"rotary_base is {self.rotary_base}, it must be above 1")
            problems += self.rotary_scaling.problems()
        elif self.rotary_scaling != NO_SCALING:
            problems.append(f"rotary_scaling is given, but positions is {self.positions!r}")
        return problems

    @property
    def head_size(self) -> int:
        """D, the width of one attention head."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def cache_width(self) -> int:
        """KV*D, the width of a position's keys, or values, in the cache."""
        return (self.num_kv_heads or self.num_heads) * self.head_size

    def to_dict(self) -> dict[str, Any]:
        """All fields, defaults too, as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """Build from a mapping; unknown or missing fields raise ConfigError by name."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - set(fields))
        if unknown:
            raise ConfigError(f"unknown fields: {', '.join(unknown)}; known: {', '.join(fields)}")
        missing = [
            name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in values
        ]
        if missing:
            raise ConfigError(f"missing fields: {', '.join(missing)}")
        scaling = values.get("rotary_scaling")
        if isinstance(scaling, Mapping):
            values = {**values, "rotary_scaling": _scaling_from(scaling)}
        return cls(**values)

    def save(self, path: Path) -> None:
        """Write the configuration as JSON."""
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> ModelConfig:
        """Read what `save` wrote; ConfigError where it is no such file, OSError where it cannot be read."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{path} is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(f"{path} holds {type(values).__name__}, it must hold an object")
        return cls.from_dict(values)


def _scaling_from(values: Mapping[str, Any]) -> RotaryScaling:
    known = [field.name for field in dataclasses.fields(RotaryScaling)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(f"unknown fields of rotary_scaling: {', '.join(unknown)}; known: {', '.join(known)}")
    return RotaryScaling(**values)
