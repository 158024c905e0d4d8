"""What the exporter asks of every graph that may run on a GPU."""

from __future__ import annotations

from pathlib import Path

from export.cuda import flash
from export.cuda.placement import problems
from export.description import ExportError
from model.config import ModelConfig

CUDA_PRECISIONS = ("fp16", "bf16", "fp32")
"""int8 is not among them: the provider has no kernel for its products."""

_FLASH_PRECISIONS = ("fp16", "bf16")


def check_graph(path: Path, precision: str, config: ModelConfig) -> None:
    """ExportError where the graph at `path` would copy between host and device, or lacks kernels there.

    Likewise where attention could be flash attention and is not: that of half-precision graphs whose model adds no bias
    to the scores and has no windows.
    """
    found = problems(path)
    has_bias = config.relative_bias != "none" or bool(config.windowed_layers)
    if precision in _FLASH_PRECISIONS and not has_bias and config.head_size <= flash.MAX_HEAD_SIZE:
        found += flash.faults(path, config.head_size)
    if found:
        faults = "; ".join(found)
        raise ExportError(
            f"on a GPU the graph would be slow: {faults}; this is a fault of the exporter, please report it"
        )
