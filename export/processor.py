"""What int8 products need of the processor that runs them, for the exporter's parity check and the server alike."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_X86 = ("x86_64", "AMD64", "i386", "i686")
_VNNI = {"avx512_vnni", "avx_vnni"}

CPU_INFO = Path("/proc/cpuinfo")


@cache
def int8_options() -> dict[str, str]:
    """The entries of an ONNX Runtime session's configuration that keep int8 products exact on this processor.

    ONNX Runtime's x86 kernel for unsigned by signed numbers adds two products in a signed 16-bit number, which
    saturates, unless the processor has VNNI. The entry makes it multiply unsigned by unsigned: right everywhere, and
    half as fast where VNNI is there (docs/decisions/0016-no-saturation-without-vnni.md).
    """
    return {"session.x64quantprecision": "1"} if _saturates(platform.machine(), CPU_INFO) else {}


def _saturates(machine: str, cpu_info: Path) -> bool:
    """Whether the fast kernel may be wrong; true of an x86 processor of which nothing is known."""
    if machine not in _X86:
        return False
    try:
        lines = cpu_info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return True
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return _VNNI.isdisjoint(flags.split())
