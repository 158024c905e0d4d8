"""What `manifest.json` says about a bundle, as models that validate themselves. Free of torch and onnx.

The manifest is the contract between the exporter and the server. `format_version` changes when a server of an older
version could no longer read it rightly; fields that an older server may ignore are added without a change.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from model.config import Architecture, ConfigError, ModelConfig

FORMAT_VERSION: Final = 2
MANIFEST_NAME = "manifest.json"

Task = Literal["translate", "generate", "embed"]
DType = Literal["int64", "float32", "float16"]

ARCHITECTURES: dict[str, Architecture] = {
    "translate": "encoder_decoder",
    "embed": "encoder",
    "generate": "decoder",
}
"""The architecture that each task is served with."""

REQUIRED_GRAPHS: dict[str, frozenset[str]] = {
    "encoder_decoder": frozenset({"encoder", "decoder"}),
    "encoder": frozenset({"encoder"}),
    "decoder": frozenset({"decoder"}),
}
"""The graphs that a bundle of each architecture must hold in every precision."""


def _inside_bundle(path: str) -> str:
    """A plain relative POSIX path, or ValueError: a manifest never points outside its own folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or re.search(r"[\\:\x00-\x1f]", path):
        raise ValueError(f"{path!r} must be a relative path inside the bundle, with forward slashes and without '..'")
    return str(PurePosixPath(path))


RelativePath = Annotated[str, AfterValidator(_inside_bundle)]
LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]+)*$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class _Part(BaseModel):
    """A part of the manifest: immutable, and tolerant of fields that a later exporter adds."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class TensorSpec(_Part):
    """One input or output of a graph; a named dimension varies from call to call, a number is fixed."""

    name: str
    dtype: DType
    shape: tuple[str | int, ...]


class GraphSpec(_Part):
    """One ONNX file with its inputs and outputs in order."""

    file: RelativePath
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class PrecisionSpec(_Part):
    """The graphs of one precision, by name ("encoder", "decoder")."""

    graphs: dict[str, GraphSpec]


class Languages(_Part):
    """The languages of a translation model and the directions that it was trained for, as (source, target)."""

    codes: tuple[LanguageCode, ...]
    directions: tuple[tuple[LanguageCode, LanguageCode], ...]

    @model_validator(mode="after")
    def _directions_use_known_codes(self) -> Self:
        unknown = sorted({code for pair in self.directions for code in pair} - set(self.codes))
        if unknown:
            raise ValueError(f"directions use {', '.join(unknown)}, which codes ({', '.join(self.codes)}) do not list")
        return self


class Limits(_Part):
    """The longest sequences that the model's positions can hold, in tokens, special tokens included."""

    max_source_tokens: Annotated[int, Field(ge=1)]
    max_target_tokens: Annotated[int, Field(ge=1)]


class DecodingDefaults(_Part):
    """What a request gets when it does not say; `num_candidates` is N, what a step gives for each row."""

    beam_size: Annotated[int, Field(ge=1)] = 4
    length_penalty: float = 1.0
    num_candidates: Annotated[int, Field(ge=1)] = 16


class Embedding(_Part):
    """How an embedding model makes one vector of a text; `max_input_tokens` counts special tokens too."""

    pooling: Literal["cls", "mean", "last_token"]
    normalize: bool = True
    """Whether its vectors are meant to have length one; the graph leaves that to the server."""
    prompts: dict[str, str] = {}
    """Texts to put before an input, by name: what the model was trained to read before a query or a passage."""
    default_prompt_name: str | None = None
    max_input_tokens: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _default_prompt_is_known(self) -> Self:
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise ValueError(f"default_prompt_name is {self.default_prompt_name!r}, prompts has {known}")
        return self


class Sampling(_Part):
    """How the makers of a model advise to choose its tokens; what is None they leave open. Names as in the API."""

    do_sample: bool | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None


class Generation(_Part):
    """How a model that continues a text is prompted, and where it ends."""

    eos_token_ids: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Any of these ends a continuation; none where only its length does."""
    adds_bos: bool = False
    """Whether the tokenizer's file itself puts a token before each text."""
    chat_template: str | None = None
    """The Jinja template that makes a prompt of a conversation."""
    special_tokens: dict[str, str] = {}
    """The spellings that the template knows by name, such as bos_token."""
    sampling: Sampling = Sampling()


class Alignment(_Part):
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


class FileRecord(_Part):
    """The SHA-256 (hex) and the size in bytes of one file of the bundle."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]


class ParityReport(_Part):
    """How far one precision is from the PyTorch model in float32; see `export.parity` for what is compared.

    `status` is "not_run" when ONNX Runtime cannot run this precision on the exporting machine; `note` then says why.
    """

    status: Literal["passed", "not_run"]
    note: str = ""
    largest_difference: float | None = None
    """Of any logit, or number of a token's vector, over all positions compared."""
    relative_error: float | None = None
    """Root mean square of the differences over that of the logits, or token vectors, about their mean."""
    relative_error_tolerance: float | None = None
    token_agreement: float | None = None
    """Share of positions at which the best token is the same."""
    sentence_agreement: float | None = None
    """Share of greedily decoded sequences that are the same to the end."""
    smallest_cosine: float | None = None
    """Between an embedding and PyTorch's, over all texts compared."""
    mean_cosine: float | None = None
    num_positions: int = 0
    num_sentences: int = 0


class Manifest(_Part):
    """The whole of `manifest.json`."""

    format_version: Literal[2] = FORMAT_VERSION
    name: Name
    task: Task
    languages: Languages | None = None
    model: dict[str, Any]
    tokenizer: RelativePath = "tokenizer.json"
    precisions: Annotated[dict[str, PrecisionSpec], Field(min_length=1)]
    attention: GraphSpec | None = None
    """The graph of every layer's attention maps, which computes in float32 on the same weights file."""
    limits: Limits
    decoding: DecodingDefaults = DecodingDefaults()
    embedding: Embedding | None = None
    generation: Generation | None = None
    alignment: Alignment | None = None
    weights: dict[str, Any] = {}
    training: dict[str, Any] = {}
    parity: dict[str, ParityReport] = {}
    files: dict[RelativePath, FileRecord]

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        problems = _missing_parts(self)
        if self.task == "translate" and self.languages is None:
            problems.append("languages is missing, a translation model needs it")
        if self.task == "embed" and self.embedding is None:
            problems.append("embedding is missing, an embedding model needs it")
        problems += _alignment_faults(self)
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return ModelConfig.from_dict(self.model)


def _missing_parts(manifest: Manifest) -> list[str]:
    """Graphs that the architecture needs and files that are named but not listed, one message each."""
    try:
        config = manifest.config
    except ConfigError as error:
        return [f"model: {error}"]
    problems = []
    if manifest.tokenizer not in manifest.files:
        problems.append(f"files does not list the tokenizer {manifest.tokenizer}")
    if manifest.attention is not None and manifest.attention.file not in manifest.files:
        problems.append(f"files does not list {manifest.attention.file}, the attention graph")
    for precision, spec in manifest.precisions.items():
        problems += [
            f"precision {precision} has no graph {name!r}, which architecture {config.architecture!r} needs"
            for name in sorted(REQUIRED_GRAPHS[config.architecture] - set(spec.graphs))
        ]
        problems += [
            f"files does not list {graph.file}, the graph {name!r} of precision {precision}"
            for name, graph in spec.graphs.items()
            if graph.file not in manifest.files
        ]
    return problems


def _alignment_faults(manifest: Manifest) -> list[str]:
    """An alignment by a layer or a head that the model does not have."""
    alignment = manifest.alignment
    if alignment is None:
        return []
    try:
        config = manifest.config
    except ConfigError:  # told by `_missing_parts` already
        return []
    problems = []
    if config.architecture != "encoder_decoder":
        problems.append(f"alignment is given, but architecture {config.architecture!r} has no cross-attention")
    if alignment.layer >= config.num_decoder_layers:
        problems.append(f"alignment.layer is {alignment.layer}, the decoder has {config.num_decoder_layers} layers")
    if alignment.head is not None and alignment.head >= config.num_heads:
        problems.append(f"alignment.head is {alignment.head}, a layer has {config.num_heads} heads")
    return problems
