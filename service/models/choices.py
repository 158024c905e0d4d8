"""The device, precision, loops and cache of a model: from the settings, the bundle and the machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, NamedTuple

from export.bundle import Bundle
from service.errors import StartupError
from service.settings import Settings

Device = Literal["cpu", "cuda"]

PRECISIONS: dict[Device, tuple[str, ...]] = {"cpu": ("int8", "int4", "fp32"), "cuda": ("fp16", "bf16", "fp32")}
"""What each device runs, the fastest first: int4 is faster than int8 for one stream only, and further from float32."""

GREEDY_STEPS: dict[Device, int] = {"cpu": 1, "cuda": 4}
"""Steps between two looks at what was chosen where nobody says: docs/decisions/0113-greedy-steps.md."""

_MAX_THREADS = 8
"""The most threads of one loop by default: each operator waits for the slowest of them."""

_CUDA_PROVIDER = "CUDAExecutionProvider"


def choose_device(wanted: Literal["auto", "cpu", "cuda"], providers: tuple[str, ...]) -> Device:
    """The device to run on; StartupError when CUDA is asked for and ONNX Runtime was built without it."""
    if wanted == "auto":
        return "cuda" if _CUDA_PROVIDER in providers else "cpu"
    if wanted == "cuda" and _CUDA_PROVIDER not in providers:
        raise StartupError(
            f"POLYHEAD_DEVICE (--device) is 'cuda', but this ONNX Runtime offers only {', '.join(providers)}: install "
            "polyhead[gpu] in place of polyhead[cpu] (make serve GPU=1), or choose cpu"
        )
    return wanted


def choose_precision(bundle: Bundle, device: Device, wanted: str, exact: Sequence[str] = ()) -> str:
    """The precision to load; StartupError when the bundle lacks it or the device does not run it.

    `auto` takes the fastest, or the fastest of `exact` where the bundle has one of those.
    """
    usable = [precision for precision in PRECISIONS[device] if precision in bundle.precisions]
    if wanted == "auto" and usable:
        return next((precision for precision in usable if precision in exact), usable[0])
    if wanted in usable:
        return wanted
    raise StartupError(
        f"bundle {bundle.path} cannot run in the precision {wanted!r} on {device}: it holds "
        f"{', '.join(bundle.precisions)}, and {device} runs {', '.join(PRECISIONS[device])}"
    )


class Cores(NamedTuple):
    """How an engine uses the CPU: `num_loops` batches at a time, of `num_threads` threads each."""

    num_loops: int
    num_threads: int


def choose_cores(settings: Settings, device: Device, num_cores: int, *, one_loop: bool) -> Cores:
    """The loops and threads that are asked for; else one loop with all cores, or one loop for each core.

    With enough batches for every core, a loop for each has the highest throughput. Steps that are bound by reading the
    weights take `one_loop`, in which all cores read them together (docs/decisions/0054-threads-of-generation.md).
    """
    if device == "cuda":
        return Cores(settings.loops or 1, settings.threads or 1)
    num_threads = settings.threads
    if not num_threads:
        num_threads = min(num_cores // (settings.loops or 1), _MAX_THREADS) if one_loop else 1
    num_threads = max(1, num_threads)
    return Cores(settings.loops or max(1, num_cores // num_threads), num_threads)


def usable_cores() -> int:
    """The CPU cores that this process may use, which in a container can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_cache_bytes(settings: Settings, usable_bytes: int, longest_bytes: int, name: str) -> int:
    """The bytes of cache for the model `name`, of `usable_bytes`; its longest request takes `longest_bytes`.

    Raises StartupError where that is too little for this request.
    """
    max_bytes = settings.max_cache_bytes or usable_bytes // 4
    if max_bytes < longest_bytes:
        raise StartupError(
            f"POLYHEAD_MAX_CACHE_BYTES (--max-cache-bytes) is {max_bytes}, but one request of the model {name} may "
            f"take {longest_bytes} bytes of key-value cache, which could then never be served: allow as "
            "many, or lower what it may ask for (POLYHEAD_MAX_TOTAL_TOKENS, _MAX_NEW_TOKENS, _MAX_BEAM_SIZE)"
        )
    return max_bytes
