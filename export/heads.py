"""The sections of a manifest's `heads`: what belongs to a head and not to the model that it stands on.

Adding a head is adding its section here and its field in `Heads`. Free of torch and onnx.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from model.config import ModelConfig
from model.translation_format import TranslationFormat

LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]+)*$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
TokenId = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class Part(BaseModel):
    """A part of the manifest: immutable, and tolerant of fields that a later exporter adds."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Head(Part):
    """The fields of every head: the graphs of a precision that it runs, by role."""

    graphs: dict[Name, Name]

    def faults(self, config: ModelConfig) -> list[str]:
        """What does not fit a model of `config`, a sentence each."""
        return []


class Limits(Part):
    """The longest sequences that the model's positions can hold, in tokens, special tokens included."""

    max_source_tokens: Count | None = None
    """Of what the encoder reads; None without one."""
    max_target_tokens: Count
    """Of the decoder's prompt and output together."""


class Decoding(Part):
    """How a decoder's tokens are chosen by default, and which are excluded."""

    num_candidates: Count = 16
    """N, how many of the best tokens a step gives for each row; K beams need 2 K."""
    beam_size: Count = 4
    length_penalty: float = 1.0
    beam_rules: Literal["polyhead", "huggingface", "ctranslate2"] = "polyhead"
    """The definition of beam search: when a hypothesis is finished, and by which length its score is divided."""
    early_stopping: Literal["always", "heuristic", "never"] = "heuristic"
    """When beam search ends: as soon as there are as many finished hypotheses as beams; when also no live beam scores
    better; or when none can. In Hugging Face's configurations these are true, false and "never"."""
    forced_begin_token_id: TokenId | None = None
    """The first token of every output."""
    forced_end_token_id: TokenId | None = None
    """The last token of an output that reaches the greatest length."""
    suppressed_token_ids: tuple[TokenId, ...] = ()
    """Tokens that are never generated."""
    bad_token_sequences: tuple[Annotated[tuple[TokenId, ...], Field(min_length=1)], ...] = ()
    """Sequences of tokens that are never generated in full."""
    no_repeat_ngram_size: Annotated[int, Field(ge=0)] = 0
    """No n-gram of so many tokens is generated twice; 0 allows it."""
    max_new_tokens: Count | None = None
    """The greatest length of outputs by the model's configuration; None leaves it to the server."""

    def faults(self, config: ModelConfig) -> list[str]:
        """Tokens that the vocabulary does not have."""
        named = {
            "forced_begin_token_id": (self.forced_begin_token_id,),
            "forced_end_token_id": (self.forced_end_token_id,),
            "suppressed_token_ids": self.suppressed_token_ids,
            "bad_token_sequences": tuple(token for sequence in self.bad_token_sequences for token in sequence),
        }
        return [
            f"decoding.{name} has {worst}, the vocabulary has {config.vocab_size} tokens"
            for name, ids in named.items()
            if (worst := max((token for token in ids if token is not None), default=0)) >= config.vocab_size
        ]


class Languages(Part):
    """The languages of a translation model and the directions that it was trained for, as (source, target)."""

    codes: tuple[LanguageCode, ...]
    directions: tuple[tuple[LanguageCode, LanguageCode], ...]

    @model_validator(mode="after")
    def _directions_use_known_codes(self) -> Self:
        unknown = sorted({code for pair in self.directions for code in pair} - set(self.codes))
        if unknown:
            raise ValueError(f"directions use {', '.join(unknown)}, which codes ({', '.join(self.codes)}) do not list")
        return self


class Alignment(Part):
    """The cross-attention that aligns words best, as `python -m model evaluate-alignment` found it."""

    layer: Annotated[int, Field(ge=0)]
    head: Annotated[int, Field(ge=0)] | None = None
    """None where all heads of the layer are taken together, as `aggregate` says."""
    shifted: bool = False
    """Whether a token is aligned by the row that reads it (Chen et al. 2020), not by the one that chose it."""
    aggregate: Literal["none", "mean", "max"] = "mean"
    error_rate: float | None = None
    """The alignment error rate that was measured, over all directions of the model."""

    @model_validator(mode="after")
    def _head_or_aggregate(self) -> Self:
        if (self.head is None) == (self.aggregate == "none"):
            raise ValueError(f"head is {self.head} and aggregate {self.aggregate!r}: a head, or a way to join them all")
        return self

    def faults(self, config: ModelConfig) -> list[str]:
        """A layer or a head that the model does not have."""
        problems = []
        if self.layer >= config.num_decoder_layers:
            problems.append(f"alignment.layer is {self.layer}, the decoder has {config.num_decoder_layers} layers")
        if self.head is not None and self.head >= config.num_heads:
            problems.append(f"alignment.head is {self.head}, a layer has {config.num_heads} heads")
        return problems


def _graph_faults(head: Head, *parts: str) -> list[str]:
    return [f"graphs does not say which graph is the {part}" for part in parts if part not in head.graphs]


def _decoder_parts(config: ModelConfig) -> tuple[str, ...]:
    return ("encoder", "decoder") if config.architecture == "encoder_decoder" else ("decoder",)


class Translate(Head):
    """Texts of one language into another, by an encoder-decoder."""

    languages: Languages
    format: TranslationFormat
    limits: Limits
    decoding: Decoding = Decoding()
    alignment: Alignment | None = None

    @property
    def max_source_tokens(self) -> int:
        """The longest source, in tokens, special tokens included."""
        return self.limits.max_source_tokens or self.limits.max_target_tokens

    def faults(self, config: ModelConfig) -> list[str]:
        if config.architecture != "encoder_decoder":
            return [f"architecture is {config.architecture!r}, it must be 'encoder_decoder'"]
        problems = [*_graph_faults(self, "encoder", "decoder"), *self.decoding.faults(config)]
        if self.limits.max_source_tokens is None:
            problems.append("limits.max_source_tokens is missing")
        return problems + (self.alignment.faults(config) if self.alignment else [])


class Embed(Head):
    """One vector of a text; `max_input_tokens` counts special tokens too."""

    pooling: Literal["cls", "mean", "last_token"]
    normalize: bool = True
    """Whether its vectors are meant to have length one; the graph leaves that to the server."""
    prompts: dict[str, str] = {}
    """Texts to put before an input, by name: what the model was trained to read before a query or a passage."""
    default_prompt_name: str | None = None
    max_input_tokens: Count
    languages: tuple[LanguageCode, ...] = ()
    """Those that the model was trained on, where that is known."""

    @model_validator(mode="after")
    def _default_prompt_is_known(self) -> Self:
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise ValueError(f"default_prompt_name is {self.default_prompt_name!r}, prompts has {known}")
        return self

    def faults(self, config: ModelConfig) -> list[str]:
        if config.architecture == "encoder_decoder":
            return ["architecture is 'encoder_decoder', it must be 'encoder' or 'decoder'"]
        return _graph_faults(self, "encoder")


class Sampling(Part):
    """How the makers of a model advise to choose its tokens; what is None they leave open. Names as in the API."""

    do_sample: bool | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None


class Generate(Head):
    """How a model that continues a text, or writes one about a source, is prompted, and where it ends."""

    eos_token_ids: tuple[TokenId, ...] = ()
    """Any of these ends a continuation; none where only its length does."""
    adds_bos: bool = False
    """Whether the tokenizer's file itself puts a token before each text."""
    chat_template: str | None = None
    """The Jinja template that makes a prompt of a conversation."""
    special_tokens: dict[str, str] = {}
    """The spellings that the template knows by name, such as bos_token."""
    sampling: Sampling = Sampling()
    limits: Limits
    decoding: Decoding = Decoding()
    languages: tuple[LanguageCode, ...] = ()
    """Those that the model was trained on, where that is known."""

    def faults(self, config: ModelConfig) -> list[str]:
        if config.architecture == "encoder":
            return ["architecture is 'encoder', it must be 'decoder' or 'encoder_decoder'"]
        problems = [*_graph_faults(self, *_decoder_parts(config)), *self.decoding.faults(config)]
        if max(self.eos_token_ids, default=0) >= config.vocab_size:
            problems.append(f"eos_token_ids has {max(self.eos_token_ids)}, the vocabulary has {config.vocab_size}")
        return problems


class Heads(Part):
    """The heads of a bundle by name; a head that this version does not know is left out."""

    translate: Translate | None = None
    embed: Embed | None = None
    generate: Generate | None = None

    def present(self) -> dict[str, Head]:
        """The sections that there are, by name."""
        return {name: head for name in type(self).model_fields if (head := getattr(self, name)) is not None}
