"""CUDA's blocks over the processor's memory: the same addresses, pitches and calls, with numpy as the device."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from service.runtime.memory import CudaBlock, CudaMirror


class HostCuda:
    """CUDA's runtime library on host addresses. `calls` keeps their order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def copy_2d(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int) -> None:
        assert 0 < width <= min(target_pitch, source_pitch)  # or CUDA refuses
        self.calls.append("copy")
        for line in range(height):
            ctypes.memmove(target + line * target_pitch, source + line * source_pitch, width)

    def clear(self, target: int, num_bytes: int) -> None:
        self.calls.append("clear")
        ctypes.memset(target, 0, num_bytes)

    def upload(self, target: int, source: int, num_bytes: int) -> None:
        self.calls.append("upload")
        ctypes.memmove(target, source, num_bytes)

    def download(self, target: int, source: int, num_bytes: int) -> None:
        self.calls.append("download")
        ctypes.memmove(target, source, num_bytes)

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def total_bytes(self) -> int:
        return 1 << 30


class HostValue:
    """What an OrtValue is to a block: the owner of memory, with an address. It begins as garbage."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.array = np.full(shape, np.nan, dtype)

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


class HostCudaMemory:
    """Blocks of CUDA's kind that a session on the processor can be bound to."""

    def __init__(self, name: str = "cpu") -> None:
        self.name = name
        self.cuda = HostCuda()
        self.values: list[HostValue] = []

    def allocate(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> CudaBlock:
        value = HostValue(shape, dtype)
        self.values.append(value)
        block = CudaBlock(shape, dtype.itemsize, value, self.cuda)
        self.cuda.clear(block.pointer(0), math.prod(shape) * dtype.itemsize)
        return block

    def mirror(self, num_bytes: int) -> CudaMirror:
        value = HostValue((num_bytes // 8,), np.dtype(np.float64))
        self.cuda.clear(value.data_ptr(), num_bytes)
        return CudaMirror(num_bytes, value, self.cuda)

    def synchronize(self) -> None:
        self.cuda.synchronize()

    def usable_bytes(self) -> int:
        return self.cuda.total_bytes()
