"""From a checkpoint's metadata to the head sections of a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from export.heads import Heads
from model.checkpoint import Checkpoint
from model.config import Architecture, ModelConfig
from model.pooling import Pooling
from model.translation_format import OWN_FORMAT

TASKS: dict[Architecture, tuple[str, ...]] = {
    "encoder_decoder": ("translate", "generate"),
    "encoder": ("embed",),
    "decoder": ("generate",),
}
"""The heads that the exporter writes graphs for."""

_OWN_FIELDS = (
    "task",
    "heads",
    "languages",
    "directions",
    "training",
    "embedding",
    "generation",
    "alignment",
    "format",
    "decoding",
)
"""What the manifest has a place of its own for; the rest of the checkpoint's metadata is its card."""


class ExportError(ValueError):
    """An export that was refused; the message says what to do."""


@dataclass(frozen=True)
class Content:
    """A model with the contents of its manifest; `pooling` is how an encoder's graph makes one vector of a text."""

    checkpoint: Checkpoint
    heads: Heads
    card: Mapping[str, Any]
    training: Mapping[str, Any]

    @property
    def pooling(self) -> Pooling:
        return "mean" if self.heads.embed is None else self.heads.embed.pooling

    @property
    def num_candidates(self) -> int:
        """The most that a head asks a step of the decoder for."""
        heads = [head for head in (self.heads.translate, self.heads.generate) if head is not None]
        return max((head.decoding.num_candidates for head in heads), default=1)

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Tokens that no head ever writes, so that the graph leaves them out of what it ranks."""
        heads = [head for head in (self.heads.translate, self.heads.generate) if head is not None]
        sets = [set(head.decoding.suppressed_token_ids) for head in heads]
        return tuple(sorted(set.intersection(*sets))) if sets else ()


def describe(checkpoint: Checkpoint, num_candidates: int) -> Content:
    """The manifest's contents for `checkpoint`; ExportError for metadata that does not fit the model."""
    metadata, config = checkpoint.metadata, checkpoint.config
    if "task" not in metadata and "heads" not in metadata:
        raise ExportError('the checkpoint\'s metadata.json has no task; add it, for instance "task": "translate"')
    given: Mapping[str, Any] = metadata.get("heads") or {metadata["task"]: _flat_section(metadata)}
    for name in given:
        if name not in TASKS[config.architecture]:
            raise ExportError(
                f"the checkpoint's metadata.json names the task {name!r}, but a model of architecture "
                f"{config.architecture!r} is for the task {' or '.join(map(repr, TASKS[config.architecture]))}"
            )
    sections = {name: _with_defaults(name, section, config, num_candidates) for name, section in given.items()}
    try:
        heads = Heads.model_validate(sections)
    except ValidationError as error:
        raise ExportError(f"the checkpoint's metadata.json: {error}") from error
    faults = [f"{name}: {fault}" for name, head in heads.present().items() for fault in head.faults(config)]
    if faults:
        raise ExportError(f"the checkpoint's metadata.json: {'; '.join(faults)}")
    card = {
        "num_parameters": checkpoint.model.num_parameters(),
        **{key: value for key, value in metadata.items() if key not in _OWN_FIELDS},
    }
    return Content(checkpoint, heads, card, metadata.get("training", {}))


def _flat_section(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The section of a checkpoint of one task, whose metadata has it in several places."""
    task = metadata["task"]
    own = {"embed": "embedding", "generate": "generation"}.get(task, "")
    section: dict[str, Any] = dict(metadata.get(own) or {})
    if "languages" in metadata:
        codes = metadata["languages"]
        directions = metadata.get("directions", ())
        section["languages"] = {"codes": codes, "directions": directions} if task == "translate" else codes
    kept = {name: metadata[name] for name in ("alignment", "format", "decoding") if metadata.get(name) is not None}
    return section | kept


def _with_defaults(name: str, section: Mapping[str, Any], config: ModelConfig, num_candidates: int) -> dict[str, Any]:
    """A section of the metadata, with what it leaves out."""
    limits = {"max_target_tokens": config.max_seq_len}
    graphs = {"decoder": "decoder"}
    if config.architecture == "encoder_decoder":
        limits["max_source_tokens"] = config.max_seq_len
        graphs = {"encoder": "encoder", **graphs}
    decoding = {**section.get("decoding", {}), "num_candidates": num_candidates}
    sections: dict[str, dict[str, Any]] = {
        "translate": {"graphs": graphs, "format": OWN_FORMAT, "limits": limits},
        "embed": {"graphs": {"encoder": "encoder"}},
        "generate": {"graphs": graphs, "eos_token_ids": (config.eos_id,), "limits": limits},
    }
    filled = sections[name] | dict(section)
    return filled if name == "embed" else filled | {"decoding": decoding}
