"""What a model needs beside its own engine for its attention maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from export.heads import Alignment
from model.config import ModelConfig
from service.engine.encode.attention import AttentionRequest, AttentionResult, Kind
from service.errors import NotFoundError
from service.models.base import RequestEngine

_KINDS: dict[str, tuple[Kind, ...]] = {
    "encoder": ("encoder",),
    "decoder": ("decoder",),
    "encoder_decoder": ("encoder", "decoder", "cross"),
}


@dataclass(frozen=True, kw_only=True)
class AttentionSupport:
    """The engine for a model's maps, the model's shape, and how to align with them where the bundle says so."""

    label: ClassVar[str] = "attention"

    engine: RequestEngine[AttentionRequest, AttentionResult]
    config: ModelConfig
    alignment: Alignment | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that the model has."""
        return _KINDS[self.config.architecture]

    def num_layers(self, kind: Kind) -> int:
        """How many layers have attention of this kind."""
        return self.config.num_encoder_layers if kind == "encoder" else self.config.num_decoder_layers


class NoAttentionError(NotFoundError):
    """The model has no attention graph."""

    def __init__(self, model_name: str) -> None:
        super().__init__(
            f"The bundle of the model {model_name} has no attention graph: export its checkpoint again with --attention"
        )
