"""What a loaded model needs so that its attention can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from export.manifest import Alignment
from model.config import ModelConfig
from service.engine.attention import Kind

if TYPE_CHECKING:  # a model has this, so at run time the one module cannot import the other
    from service.models import AttentionEngine

_KINDS: dict[str, tuple[Kind, ...]] = {
    "encoder": ("encoder",),
    "decoder": ("decoder",),
    "encoder_decoder": ("encoder", "decoder", "cross"),
}


@dataclass(frozen=True, kw_only=True)
class AttentionSupport:
    """The engine for a model's maps, the model's shape, and how to align with them where the bundle says so."""

    engine: AttentionEngine
    config: ModelConfig
    alignment: Alignment | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that the model has."""
        return _KINDS[self.config.architecture]

    def num_layers(self, kind: Kind) -> int:
        """How many layers have attention of this kind."""
        return self.config.num_encoder_layers if kind == "encoder" else self.config.num_decoder_layers
