"""A graph as an ONNX Runtime session, and the memory for its caches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from export.processor import int8_options
from service.runtime.memory import CudaMemory, HostMemory, Memory

_BFLOAT16 = 16
"""ONNX's number for bfloat16, which numpy does not have."""


def open_session(
    path: Path,
    device: str,
    num_threads: int,
    profile: Path | None = None,
    cuda: Mapping[str, str] | None = None,
    *,
    repeats_shapes: bool = True,
) -> Any:
    """An ONNX Runtime session of one graph; `num_threads` compute each operator on the CPU.

    `profile` is the prefix of the file to which the runtime writes its profile; `cuda` are options of the CUDA provider
    beside those set here. `repeats_shapes` says that consecutive runs mostly have one shape, so that memory patterns
    pay.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.enable_mem_pattern = repeats_shapes
    if device == "cpu":
        # It never gives back what one large batch took (docs/decisions/0153-memory-given-back.md).
        options.enable_cpu_mem_arena = False
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    for name, value in int8_options().items():
        options.add_session_config_entry(name, value)
    # Threads spin while they wait for the next operator, which is sooner than they could be woken, but not between
    # runs, when Python needs the cores (docs/decisions/0054-threads-of-generation.md).
    options.add_session_config_entry("session.force_spinning_stop", "1")
    providers: list[Any] = ["CPUExecutionProvider"]
    if device == "cuda":
        # The default doubles the arena whenever it grows, and odd shapes make it grow for ever.
        ort.preload_dlls()  # the CUDA and cuDNN libraries that the gpu extra installed beside it
        providers.insert(0, ("CUDAExecutionProvider", {"arena_extend_strategy": "kSameAsRequested", **(cuda or {})}))
    # The fused kernel of a sum and its norm takes four times as long as the two on the CPU (docs/decisions/0042).
    slow_fusions = ["SkipLayerNormFusion"] if device == "cpu" else []
    session = ort.InferenceSession(str(path), options, providers=providers, disabled_optimizers=slow_fusions)
    # Without a usable GPU the runtime goes on with the CPU and says so only in its log.
    if device == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError(
            "ONNX Runtime could not start its CUDA provider: check the driver and the CUDA and cuDNN libraries "
            "(the gpu extra installs the latter), or choose the device cpu"
        )
    return session


def memory_of(device: str) -> Memory:
    """The memory for the caches of a session on `device`."""
    return CudaMemory() if device == "cuda" else HostMemory()


class CacheType(NamedTuple):
    """The type of a cache's numbers, as numpy allocates them and as ONNX Runtime binds them."""

    dtype: np.dtype[Any]
    element: Any

    @classmethod
    def of(cls, name: str) -> CacheType:
        """That of a type as manifests spell it."""
        if name == "bfloat16":
            return cls(np.dtype(np.uint16), _BFLOAT16)
        return cls(np.dtype(name), np.dtype(name))
