"""The device: whether it can be used at all, what it is, and the two ceilings that speeds are held against."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import onnxruntime as ort
import torch

from bench.gpu.scale import Scale
from bench.side import BenchError

DTYPES = {"fp16": torch.float16, "fp32": torch.float32}
PRECISIONS = tuple(DTYPES)

_REPEATS = 20


def check_device(device: str) -> None:
    """BenchError, with what to install, when ONNX Runtime or PyTorch cannot use CUDA and `device` asks for it."""
    if device == "cpu":
        return
    providers = ort.get_available_providers()
    if "CUDAExecutionProvider" not in providers:
        raise BenchError(
            f"this ONNX Runtime has no CUDA provider (it offers {', '.join(providers)}): on a machine with an NVIDIA "
            'GPU run `pip uninstall onnxruntime` and `pip install "onnxruntime-gpu[cuda,cudnn]>=1.31"`; '
            "--device cpu tries the script with tiny models"
        )
    if not torch.cuda.is_available():
        raise BenchError(
            f"PyTorch {torch.__version__} sees no CUDA device, and the benchmark compares with it: check the driver "
            "with nvidia-smi, and install a build of torch for CUDA; --device cpu tries the script with tiny models"
        )


def describe_device(device: str) -> dict[str, Any]:
    """Its name, memory, driver and the versions that matter."""
    try:
        runtime = version("onnxruntime-gpu")
    except PackageNotFoundError:
        runtime = "not installed"
    described: dict[str, Any] = {"device": device, "onnxruntime-gpu": runtime, "torch": torch.__version__}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        described |= {
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_gib": round(properties.total_memory / (1 << 30), 1),
            "cuda": torch.version.cuda,
        }
    return described


def torch_device(device: str) -> torch.device:
    """PyTorch's name for it; TF32 is allowed there, because ONNX Runtime uses it unless told otherwise."""
    torch.set_float32_matmul_precision("high")
    return torch.device(device)


def synchronize(device: str) -> None:
    """Wait for all that PyTorch has asked of the device."""
    if device == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Ceilings:
    """What the device reaches at best: bytes a second, read and written, and operations a second by precision."""

    bytes_per_second: float
    operations_per_second: Mapping[str, float]

    def floor(self, num_bytes: float, operations: float, precision: str) -> float:
        """The least seconds for so much work: the larger of its two times."""
        return max(num_bytes / self.bytes_per_second, operations / self.operations_per_second[precision])

    def to_dict(self) -> dict[str, Any]:
        return {
            "copied_gigabytes_per_second": round(self.bytes_per_second / 1e9, 2),
            "matrix_teraflops": {name: round(rate / 1e12, 3) for name, rate in self.operations_per_second.items()},
        }


def measure_ceilings(device: str, scale: Scale) -> Ceilings:
    """Copy a large block within the device's memory, and multiply two large matrices of random numbers."""
    place = torch_device(device)
    rates = {precision: _matrix_rate(place, dtype, scale.matrix_size) for precision, dtype in DTYPES.items()}
    return Ceilings(_copy_rate(place, scale.copy_bytes), rates)


def _copy_rate(place: torch.device, size: int) -> float:
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    return 2 * size / _seconds(lambda: target.copy_(source), place.type)


def _matrix_rate(place: torch.device, dtype: torch.dtype, size: int) -> float:
    left, right = (torch.randn(size, size, device=place).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    return float(2 * size**3 / _seconds(lambda: torch.mm(left, right, out=product), place.type))


def _seconds(work: Callable[[], object], device: str) -> float:
    """The seconds of one of several calls in a row, the first of which are not counted."""
    for _ in range(3):
        work()
    synchronize(device)
    start = time.perf_counter()
    for _ in range(_REPEATS):
        work()
    synchronize(device)
    return (time.perf_counter() - start) / _REPEATS
