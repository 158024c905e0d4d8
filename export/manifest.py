"""`manifest.json`, the description of a bundle, as pydantic models. Free of torch and onnx.

The manifest is the contract between the exporter and the server. `format_version` changes when a server of an older
version could no longer read it rightly; fields that an older server may ignore are added without a change. The format
is described in docs/bundles.md.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from export.heads import Heads, Name, Part, TokenId
from model.config import ConfigError, ModelConfig

FORMAT_VERSION: Final = 3
MANIFEST_NAME = "manifest.json"

DType = Literal["int64", "float32", "float16", "bfloat16"]


def _inside_bundle(path: str) -> str:
    """A plain relative POSIX path, or ValueError: a manifest never points outside its own folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or re.search(r"[\\:\x00-\x1f]", path):
        raise ValueError(f"{path!r} must be a relative path inside the bundle, with forward slashes and without '..'")
    return str(PurePosixPath(path))


RelativePath = Annotated[str, AfterValidator(_inside_bundle)]


class TensorSpec(Part):
    """One input or output of a graph; a named dimension varies from call to call, a number is fixed."""

    name: str
    dtype: DType
    shape: tuple[str | int, ...]

    @property
    def is_by_head(self) -> bool:
        """Whether this is a cache whose heads lie apart, (B,KV,C,D); others are (B,C,KV*D)."""
        return "_cache." in self.name and len(self.shape) == 4


class GraphSpec(Part):
    """One ONNX file with its inputs and outputs in order."""

    file: RelativePath
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class PrecisionSpec(Part):
    """The graphs of one precision, by name; heads say which of them they run."""

    graphs: dict[str, GraphSpec]


class TokenizerSpec(Part):
    """A `tokenizer.json`, and where its ids are not the model's, the map from its pieces to those."""

    file: RelativePath
    pieces: RelativePath | None = None
    """A JSON object of ids by piece; a piece that it lacks is `unknown_id`."""
    unknown_id: TokenId | None = None

    @model_validator(mode="after")
    def _map_has_an_unknown(self) -> Self:
        if (self.pieces is None) != (self.unknown_id is None):
            raise ValueError(f"pieces is {self.pieces!r} and unknown_id {self.unknown_id}: give both or neither")
        return self


class Tokenizers(Part):
    """One for all, or one for what an encoder reads and one for what a decoder writes."""

    shared: TokenizerSpec | None = None
    source: TokenizerSpec | None = None
    target: TokenizerSpec | None = None

    @model_validator(mode="after")
    def _one_or_two(self) -> Self:
        given = {role for role in ("shared", "source", "target") if getattr(self, role) is not None}
        if given not in ({"shared"}, {"source", "target"}):
            raise ValueError(f"has {', '.join(sorted(given)) or 'none'}, it must be shared, or source and target")
        return self

    @property
    def encoder(self) -> TokenizerSpec:
        """Of what an encoder reads."""
        return self.shared or self._of("source")

    @property
    def decoder(self) -> TokenizerSpec:
        """Of what a decoder reads and writes."""
        return self.shared or self._of("target")

    def _of(self, role: str) -> TokenizerSpec:
        spec: TokenizerSpec = getattr(self, role)
        return spec

    def files(self) -> list[str]:
        """All files of all tokenizers."""
        specs = [spec for spec in (self.shared, self.source, self.target) if spec is not None]
        return [path for spec in specs for path in (spec.file, spec.pieces) if path is not None]


class WeightFileSpec(Part):
    """How the tensors of one weights file are stored.

    "cast" are numbers of the type `dtype`, of which a graph makes what it computes with as it is loaded: it casts or
    quantises them. "quantised" are integers of `dtype` with their scales, which a graph multiplies with as they are.
    """

    storage: Literal["cast", "quantised"]
    dtype: Literal["float32", "float16", "bfloat16", "int8", "int4"]


class FileRecord(Part):
    """The SHA-256 (hex) and the size in bytes of one file of the bundle."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]


class ParityReport(Part):
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


class Manifest(Part):
    """The whole of `manifest.json`."""

    format_version: Literal[3] = FORMAT_VERSION
    name: Name
    min_onnxruntime: Annotated[str, Field(pattern=r"^\d{1,5}(\.\d{1,5}){0,3}$")]
    """The oldest ONNX Runtime that computes these graphs rightly."""
    model: dict[str, Any]
    tokenizers: Tokenizers
    heads: Heads
    precisions: Annotated[dict[str, PrecisionSpec], Field(min_length=1)]
    attention: GraphSpec | None = None
    """The graph of every layer's attention maps, which computes in float32 on the same weights file."""
    weights: Annotated[dict[RelativePath, WeightFileSpec], Field(min_length=1)]
    index: RelativePath | None = None
    """Which tensor of the model lies where in the weights files, for `python -m export upgrade`."""
    calibration: str | None = None
    """The SHA-256 of the texts that the int8 graphs of an encoder were measured on."""
    card: dict[str, Any] = Field(default_factory=dict)
    """The origin of the model, from the checkpoint's metadata: licence, description, source."""
    training: dict[str, Any] = Field(default_factory=dict)
    parity: dict[str, ParityReport] = Field(default_factory=dict)
    files: dict[RelativePath, FileRecord]

    @field_validator("heads", mode="before")
    @classmethod
    def _some_head_is_known(cls, heads: Any) -> Any:
        if isinstance(heads, dict) and not set(heads) & set(Heads.model_fields):
            given = ", ".join(map(str, heads)) or "none"
            raise ValueError(f"are {given}; this version serves {', '.join(Heads.model_fields)}")
        return heads

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        try:
            config = self.config
        except ConfigError as error:
            raise ValueError(f"model: {error}") from error
        problems = [
            f"heads.{name}: {fault}" for name, head in self.heads.present().items() for fault in head.faults(config)
        ]
        problems += _missing_graphs(self) + _unlisted_files(self)
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def graph_files(self) -> set[str]:
        """The files of all graphs."""
        graphs = {graph.file for spec in self.precisions.values() for graph in spec.graphs.values()}
        return graphs | ({self.attention.file} if self.attention else set())

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return ModelConfig.from_dict(self.model)


def _missing_graphs(manifest: Manifest) -> list[str]:
    return [
        f"precision {precision} has no graph {graph!r}, which the head {name!r} needs"
        for name, head in manifest.heads.present().items()
        for graph in head.graphs.values()
        for precision, spec in manifest.precisions.items()
        if graph not in spec.graphs
    ]


def _unlisted_files(manifest: Manifest) -> list[str]:
    """Files that the manifest names and `files` does not."""
    named = [(path, "a tokenizer") for path in manifest.tokenizers.files()]
    named += [(path, "a weights file") for path in manifest.weights]
    for precision, spec in manifest.precisions.items():
        named += [(graph.file, f"the graph {name!r} of precision {precision}") for name, graph in spec.graphs.items()]
    if manifest.attention is not None:
        named.append((manifest.attention.file, "the attention graph"))
    if manifest.index is not None:
        named.append((manifest.index, "the index of the weights"))
    return [f"files does not list {path}, {what}" for path, what in named if path not in manifest.files]
