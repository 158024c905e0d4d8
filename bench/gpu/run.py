"""What every part of a run is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.device import Ceilings
from bench.gpu.models import PreparedModel
from bench.gpu.record import Record
from bench.gpu.scale import Scale


@dataclass(frozen=True)
class Run:
    """`models` are those of the measured shapes that were chosen, `bundles` the folders of the shipped ones."""

    device: str
    scale: Scale
    precisions: Sequence[str]
    rounds: int
    models: Mapping[str, PreparedModel]
    bundles: Sequence[Path]
    ceilings: Ceilings
    record: Record
    cuda_graphs: bool = True
    """Whether our steps are recorded as CUDA graphs, on a device."""

    def chosen(self, models: Mapping[str, object]) -> list[PreparedModel]:
        """Those of `models` that were prepared, in their order."""
        return [self.models[name] for name in models if name in self.models]
