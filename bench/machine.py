"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("polyhead", "ctranslate2", "onnxruntime", "numpy", "torch")

_WORTH_NAMING = (
    *("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "i8mm", "sve"),
)
"""CPU features that the kernels of either side look for."""

_BUSY_SHARE = 0.25


def describe_machine() -> dict[str, Any]:
    """Processor, its features, cores that this process may use, memory, versions, and how busy the machine is."""
    cpu = _cpu_info()
    flags = set(cpu.get("flags", cpu.get("Features", "")).split())
    return {
        "cpu": cpu.get("model name", platform.processor() or platform.machine()),
        "cpu_flags": [flag for flag in _WORTH_NAMING if flag in flags],
        "cores": num_cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def num_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy_warning(load_average: float, cores: int) -> str | None:
    """A line to print when other work shares the machine, by the one-minute `load_average`; None when it is at rest."""
    if load_average <= _BUSY_SHARE * cores:
        return None
    return (
        f"warning: the machine is busy (load average {load_average:.1f} on {cores} cores before the benchmark began): "
        "ratios may hold, speeds do not"
    )


def _cpu_info() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return {}
    first = path.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"
