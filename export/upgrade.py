"""A bundle's graphs and manifest once more, from its own weights and configuration: the checkpoint is not needed.

It takes bundles to the present format, and is how graphs change in bundles whose checkpoints are elsewhere. What cannot
be computed again is carried over: name, head sections, card and training record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from export.bundle import UPGRADABLE_VERSION, BundleError, check_files, load_bundle, read_json
from export.calibration import TEXTS
from export.comparison import ParityError
from export.description import Content
from export.graphs import graph_definitions
from export.heads import Heads
from export.index import read_graphs, read_index
from export.manifest import (
    MANIFEST_NAME,
    FileRecord,
    GraphSpec,
    Manifest,
    PrecisionSpec,
    Tokenizers,
    TokenizerSpec,
)
from export.weights import Array
from export.writing import Plan, Report, check_precision, write_bundle
from model.checkpoint import Checkpoint
from model.config import ConfigError, ModelConfig
from model.piece_tokenizer import PieceTokenizer
from model.tokenizer import Tokenizer
from model.transformer import Transformer
from model.translation_format import OWN_FORMAT


class UpgradeError(ValueError):
    """A bundle that cannot be upgraded from its own files; the message says why."""


@dataclass(frozen=True)
class _Old:
    """The manifest of a bundle of any format that can be upgraded."""

    name: str
    config: ModelConfig
    tokenizers: Tokenizers
    heads: Heads
    precisions: Mapping[str, PrecisionSpec]
    attention: GraphSpec | None
    calibration: str | None
    card: Mapping[str, Any]
    training: Mapping[str, Any]
    tensors: Mapping[str, Array]


def upgrade_bundle(folder: Path, calibration: Path | None, report: Report) -> Manifest:
    """Write the bundle in `folder` again in its place and return its manifest; `report` is told of each step.

    `calibration` are the texts that an encoder's int8 is measured on, by default those of this package. Raises
    UpgradeError or BundleError for a bundle that cannot be made again, ParityError where graphs differ too much.
    """
    old = _read(folder)
    _check_calibration(old, folder, calibration)
    content = Content(_checkpoint(old, folder), old.heads, old.card, old.training)
    _check_model(old, content, folder, report)
    plan = Plan(
        old.name,
        tuple(old.precisions),
        old.attention is not None,
        calibration,
        group_query=any(
            spec.is_by_head
            for precision in old.precisions.values()
            for graph in precision.graphs.values()
            for spec in graph.inputs
        ),
    )
    return write_bundle(content, folder, plan, report)


def _read(folder: Path) -> _Old:
    values = read_json(folder)
    read = _read_format_2 if values.get("format_version") == UPGRADABLE_VERSION else _read_present
    try:
        return read(folder, values)
    except (KeyError, TypeError, AttributeError, ValidationError, ConfigError) as error:
        raise BundleError(f"{folder / MANIFEST_NAME} is not a valid manifest: {error}") from error


def _read_present(folder: Path, _: Mapping[str, Any]) -> _Old:
    manifest = load_bundle(folder).manifest
    if manifest.index is None:
        raise UpgradeError(f"bundle {folder} has no index of its weights: export it again from its checkpoint")
    return _Old(
        name=manifest.name,
        config=manifest.config,
        tokenizers=manifest.tokenizers,
        heads=manifest.heads,
        precisions=manifest.precisions,
        attention=manifest.attention,
        calibration=manifest.calibration,
        card=manifest.card,
        training=manifest.training,
        tensors=read_index(folder, manifest.index),
    )


def _read_format_2(folder: Path, values: Mapping[str, Any]) -> _Old:
    check_files(folder, {name: FileRecord.model_validate(record) for name, record in values["files"].items()})
    precisions = {name: PrecisionSpec.model_validate(spec) for name, spec in values["precisions"].items()}
    attention = GraphSpec.model_validate(values["attention"]) if values.get("attention") else None
    graphs = [graph for spec in precisions.values() for graph in spec.graphs.values()]
    kept = ("dtype", "sha256")  # said by `weights` and `files` now
    return _Old(
        name=values["name"],
        config=ModelConfig.from_dict(values["model"]),
        tokenizers=Tokenizers.model_validate({"shared": {"file": values["tokenizer"]}}),
        heads=Heads.model_validate({values["task"]: _section_of_format_2(values)}),
        precisions=precisions,
        attention=attention,
        calibration=None,
        card={key: value for key, value in values.get("weights", {}).items() if key not in kept},
        training=values.get("training", {}),
        tensors=read_graphs(folder, [*graphs, *([attention] if attention else [])]),
    )


def _section_of_format_2(values: Mapping[str, Any]) -> dict[str, Any]:
    """The head of a bundle of format 2, which had one and kept what is its own in several places."""
    languages, limits = values.get("languages"), values["limits"]
    shared: dict[str, Any] = {"limits": limits, "decoding": values.get("decoding", {})}
    codes = languages["codes"] if languages else ()
    if values["task"] == "translate":
        graphs = {"encoder": "encoder", "decoder": "decoder"}
        alignment = values.get("alignment")
        return {"graphs": graphs, "languages": languages, "format": OWN_FORMAT, "alignment": alignment, **shared}
    if values["task"] == "embed":
        return {"graphs": {"encoder": "encoder"}, "languages": codes, **values["embedding"]}
    ends = (values["model"].get("eos_id", ModelConfig.eos_id),)
    generation = values.get("generation") or {"eos_token_ids": ends}
    shared["limits"] = {"max_target_tokens": limits["max_target_tokens"]}
    return {"graphs": {"decoder": "decoder"}, "languages": codes, **generation, **shared}


def _checkpoint(old: _Old, folder: Path) -> Checkpoint:
    """The model of the bundle's weights, computing in float32."""
    model = Transformer(old.config)
    state = model.state_dict()
    if missing := sorted(set(state) - set(old.tensors)):
        raise UpgradeError(
            f"bundle {folder} does not hold {', '.join(missing)} as numbers to compute with, so its graphs cannot be "
            "made again: export it again from its checkpoint"
        )
    arrays = {name: torch.tensor(old.tensors[name]) for name in state}
    if wrong := [name for name, tensor in state.items() if arrays[name].shape != tensor.shape]:
        raise UpgradeError(f"bundle {folder} holds {', '.join(wrong)} in other shapes than its configuration asks for")
    model.load_state_dict({name: tensor.float() for name, tensor in arrays.items()})
    for name, buffer in model.named_buffers():  # tables: as they are, so that not even their last bits change
        if name in old.tensors and old.tensors[name].shape == buffer.shape:
            buffer.copy_(torch.tensor(old.tensors[name]))
    dtypes = {tensor.dtype for tensor in arrays.values()}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    target = None if old.tokenizers.target is None else _load_tokenizer(folder, old.tokenizers.target)
    return Checkpoint(model.eval(), _load_tokenizer(folder, old.tokenizers.encoder), {}, dtype, target)


def _load_tokenizer(folder: Path, spec: TokenizerSpec) -> Tokenizer:
    if spec.pieces is None:
        return Tokenizer.load(folder / spec.file)
    return PieceTokenizer.load_pieces(folder / spec.file, folder / spec.pieces, spec.unknown_id)


def _check_calibration(old: _Old, folder: Path, calibration: Path | None) -> None:
    """UpgradeError where other texts are given than those that the bundle was made with."""
    if old.calibration is None:
        return
    found = sha256((calibration or TEXTS).read_bytes()).hexdigest()
    if found != old.calibration:
        raise UpgradeError(
            f"bundle {folder} was calibrated on texts with the SHA-256 {old.calibration}, {calibration or TEXTS} has "
            f"{found}: give the texts that it was made with, with --calibration"
        )


def _check_model(old: _Old, content: Content, folder: Path, report: Report) -> None:
    """ParityError where the model that was made of the weights is not what the bundle's own graphs compute."""
    name = "fp32" if "fp32" in old.precisions else next(iter(old.precisions))
    definitions = graph_definitions(content.checkpoint.model, "float32", content.pooling)
    names = {definition.name: [spec.name for spec in definition.inputs] for definition in definitions}
    found = {key: [spec.name for spec in graph.inputs] for key, graph in old.precisions[name].graphs.items()}
    if found != names:
        report(f"the graphs of {name} have other inputs than those of today, so they are not compared with the model")
        return
    report(f"checking the model against {name} as it is")
    try:
        check_precision(content, folder, name, old.precisions[name])
    except ParityError as error:
        raise ParityError(f"bundle {folder} computes something else than the model of its weights: {error}") from error
