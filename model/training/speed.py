"""How fast training runs beside what the machine's matrix products allow."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

_ROWS = 2048
_MEASURED_SECONDS = 0.2


class FlopCount(TorchDispatchMode):
    """Counts in `total` the operations (two a multiplication with its addition) of matrix products run within it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        count = flop_registry.get(func.overloadpacket)
        if count is not None:
            self.total += int(count(*args, **(kwargs or {}), out_val=result))
        return result


def matrix_rate(
    width: int, inner: int, device: torch.device, dtype: torch.dtype, workers: ThreadPoolExecutor | None = None
) -> float:
    """Operations a second of products of (2048,width) and (width,inner) matrices, one in each worker at a time.

    Measured for a fifth of a second, so that other work on the machine counts as it does in training.
    """

    def measure(_: int) -> float:
        left = torch.ones(_ROWS, width, device=device, dtype=dtype)
        right = torch.ones(width, inner, device=device, dtype=dtype)
        return _rate(lambda: left @ right, 2 * _ROWS * width * inner, device)

    if workers is None:
        return measure(0)
    return sum(workers.map(measure, range(torch.get_num_threads())))


def _rate(product: Callable[[], Any], num_operations: int, device: torch.device) -> float:
    product()
    count, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < _MEASURED_SECONDS:
        product()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        count += 1
    return count * num_operations / seconds
