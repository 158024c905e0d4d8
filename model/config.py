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
Positions = Literal["none", "sinusoidal", "learned", "rotary"]
Sinusoids = Literal["interleaved", "halves", "tensor2tensor"]
RelativeBias = Literal["none", "shared", "per_layer"]
SourceEmbedding = Literal["shared", "own_positions", "own"]
Norm = Literal["layer", "rms"]
NormOrder = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "architecture": get_args(Architecture),
    "positions": get_args(Positions),
    "sinusoids": get_args(Sinusoids),
    "relative_bias": get_args(RelativeBias),
    "source_embedding": get_args(SourceEmbedding),
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
    "tuple[int, ...]": (tuple,),
}
_TYPE_NAMES: dict[Any, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "RotaryScaling": f"an object with any of {', '.join(field.name for field in dataclasses.fields(RotaryScaling))}",
    "tuple[int, ...]": "a list of whole numbers",
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
    """What is added to the embeddings, or turns queries and keys; "none" leaves places to `relative_bias`."""
    sinusoids: Sinusoids = "interleaved"
    """Columns of the table: sine and cosine in turn, as in the paper; all sines, then all cosines, as Marian has them;
    or so with the slowest wave exactly 10,000 times slower than the fastest, as tensor2tensor and fairseq have them."""
    position_offset: int = 0
    """The place that the first token has in the table of sinusoids; fairseq counts from the padding's id plus one."""
    rotary_base: float = 10_000.0
    """The slowest pair of a head turns nearly so many times slower than the fastest."""
    rotary_scaling: RotaryScaling = NO_SCALING
    relative_bias: RelativeBias = "none"
    """A learned number for each head and distance, added to the scores of self-attention: one table for all layers of a
    stack, or one for each layer. Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1."""
    relative_buckets: int = 32
    """How many numbers a head has: near distances have one each, farther ones share one."""
    relative_max_distance: int = 128
    """All distances from here on share the last bucket."""
    attention_scale: float = 0.0
    """What the scores of attention are multiplied by; 0 is 1 / sqrt(D), section 3.2.1 of the paper."""
    attention_window: int = 0
    """How many places away self-attention sees, to either side, in the layers `windowed_layers` of each stack. Beltagy
    et al. 2020, https://arxiv.org/abs/2004.05150."""
    windowed_layers: tuple[int, ...] = ()
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
    source_embedding: SourceEmbedding = "shared"
    """What an encoder-decoder's two sides share: the whole embedding; the tokens' alone, while each side has positions
    and a norm of its own, as BART has; or nothing."""
    source_vocab_size: int = 0
    """Tokens of the encoder where its embedding is its own; 0 is vocab_size."""
    num_token_types: int = 0
    """Kinds of token with an embedding of their own: 2 in BERT, the first text and the second; 0 is none."""
    tied_embeddings: bool = True
    """The output projection is the transposed embedding (Press and Wolf 2017, https://arxiv.org/abs/1608.05859)."""
    scale_projection: bool = False
    """Divide the decoder's output by sqrt(d_model) before the projection, as T5 does where that is tied."""
    final_bias: bool = True
    """A bias on the logits."""
    pad_id: int = 0
    bos_id: int = 1
    """What a decoder's output starts from."""
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
        problems += self._position_problems()
        problems += self._source_problems()
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

    def _position_problems(self) -> list[str]:
        problems = []
        if self.positions == "sinusoidal" and self.d_model % 2:
            problems.append(f"d_model {self.d_model} is odd; sinusoidal positions need an even one")
        if self.positions != "sinusoidal" and (self.sinusoids != "interleaved" or self.position_offset):
            problems.append(f"sinusoids or position_offset is given, but positions is {self.positions!r}")
        if self.sinusoids == "tensor2tensor" and self.d_model < 4:
            problems.append(f"d_model is {self.d_model}, sinusoids 'tensor2tensor' need at least 4")
        if self.position_offset < 0:
            problems.append(f"position_offset is {self.position_offset}, it must be at least 0")
        # Half of an encoder's buckets are for keys before the query, and half of those for single distances.
        if self.relative_bias != "none" and (self.relative_buckets < 4 or self.relative_buckets % 2):
            problems.append(f"relative_buckets is {self.relative_buckets}, it must be even and at least 4")
        elif self.relative_bias != "none" and self.relative_max_distance <= self.relative_buckets // 2:
            problems.append(
                f"relative_max_distance is {self.relative_max_distance}, allowed: above relative_buckets / 2"
            )
        if not 0.0 <= self.attention_scale < math.inf:
            problems.append(f"attention_scale is {self.attention_scale}, it must be positive, or 0 for 1 / sqrt(D)")
        return problems + self._window_problems()

    def _window_problems(self) -> list[str]:
        layers = max(self.num_encoder_layers, self.num_decoder_layers)
        wrong = [layer for layer in self.windowed_layers if layer not in range(layers)]
        if wrong:
            return [f"windowed_layers has {', '.join(map(repr, wrong))}, allowed: 0 to {layers - 1}"]
        if bool(self.windowed_layers) != (self.attention_window > 0):
            count = len(self.windowed_layers)
            return [
                f"attention_window is {self.attention_window}, but windowed_layers has {count}: give both or neither"
            ]
        return []

    def _source_problems(self) -> list[str]:
        problems = []
        if self.source_embedding != "shared" and self.architecture != "encoder_decoder":
            problems.append(
                f"source_embedding is {self.source_embedding!r}, it must be 'shared' for {self.architecture!r}"
            )
        if self.source_vocab_size and self.source_embedding != "own":
            problems.append(f"source_vocab_size is given, but source_embedding is {self.source_embedding!r}")
        if self.source_vocab_size < 0:
            problems.append(f"source_vocab_size is {self.source_vocab_size}, it must be at least 0")
        return problems

    @property
    def num_source_tokens(self) -> int:
        """The size of the vocabulary that an encoder reads."""
        return self.source_vocab_size or self.vocab_size

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
        if isinstance(values.get("windowed_layers"), list):
            values = {**values, "windowed_layers": tuple(values["windowed_layers"])}
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
