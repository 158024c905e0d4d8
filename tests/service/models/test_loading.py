from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from export.bundle import Bundle
from service.errors import StartupError
from service.heads.registry import TASKS
from service.models.choices import choose_cores, choose_device, choose_precision
from service.settings import Settings

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def bundle_of(*precisions: str) -> Bundle:
    return cast("Bundle", SimpleNamespace(path=Path("b"), precisions=precisions))


def test_auto_takes_cuda_where_the_runtime_has_it() -> None:
    assert choose_device("auto", (CPU,)) == "cpu"
    assert choose_device("auto", (CUDA, CPU)) == "cuda"
    assert choose_device("cpu", (CUDA, CPU)) == "cpu"


def test_cuda_without_its_runtime_says_what_to_install() -> None:
    with pytest.raises(StartupError, match=r"install polyhead\[gpu\]"):
        choose_device("cuda", (CPU,))


@pytest.mark.parametrize(
    ("device", "wanted", "held", "chosen"),
    [
        ("cpu", "auto", ("fp32", "int8", "fp16"), "int8"),
        ("cpu", "auto", ("fp32", "int4", "int8"), "int8"),
        ("cpu", "auto", ("fp32", "int4"), "int4"),
        ("cpu", "int4", ("fp32", "int8", "int4"), "int4"),
        ("cpu", "auto", ("fp32",), "fp32"),
        ("cuda", "auto", ("fp32", "int4"), "fp32"),
        ("cpu", "fp32", ("fp32", "int8"), "fp32"),
        ("cuda", "auto", ("fp32", "int8", "fp16"), "fp16"),
        ("cuda", "auto", ("fp32", "int8"), "fp32"),
    ],
)
def test_the_fastest_precision_of_the_device(device: Any, wanted: str, held: tuple[str, ...], chosen: str) -> None:
    assert choose_precision(bundle_of(*held), device, wanted) == chosen


def test_auto_takes_the_fastest_of_those_that_are_exact() -> None:
    assert choose_precision(bundle_of("fp32", "int8"), "cpu", "auto", exact=["fp32"]) == "fp32"
    assert choose_precision(bundle_of("fp32", "int8"), "cpu", "auto", exact=["fp32", "int8"]) == "int8"
    assert choose_precision(bundle_of("int8"), "cpu", "auto", exact=["fp32"]) == "int8"  # nothing better is there
    assert choose_precision(bundle_of("fp32", "int8"), "cpu", "int8", exact=["fp32"]) == "int8"


@pytest.mark.parametrize(
    ("device", "wanted", "held"),
    [("cpu", "fp16", ("fp16", "fp32")), ("cpu", "int8", ("fp32",)), ("cpu", "auto", ("fp16",))],
)
def test_a_precision_that_cannot_be_had(device: Any, wanted: str, held: tuple[str, ...]) -> None:
    with pytest.raises(StartupError, match=f"it holds {', '.join(held)}, and cpu runs int8, int4, fp32"):
        choose_precision(bundle_of(*held), device, wanted)


@pytest.mark.parametrize(
    ("settings", "task", "device", "num_cores", "cores"),
    [
        ({}, "translate", "cpu", 2, (2, 1)),
        ({}, "embed", "cpu", 1, (1, 1)),
        ({}, "translate", "cpu", 64, (64, 1)),
        ({"threads": 4}, "embed", "cpu", 2, (1, 4)),
        ({"loops": 3}, "translate", "cpu", 2, (3, 1)),
        ({}, "translate", "cuda", 64, (1, 1)),
        ({}, "generate", "cpu", 1, (1, 1)),
        ({}, "generate", "cpu", 2, (1, 2)),
        ({}, "generate", "cpu", 20, (2, 8)),
        ({"threads": 1}, "generate", "cpu", 2, (2, 1)),
        ({"loops": 4}, "generate", "cpu", 8, (4, 2)),
        ({"loops": 4}, "generate", "cpu", 2, (4, 1)),
        ({}, "generate", "cuda", 64, (1, 1)),
    ],
)
def test_loops_and_threads(settings: dict[str, Any], task: str, device: Any, num_cores: int, cores: Any) -> None:
    assert choose_cores(Settings(**settings), device, num_cores, one_loop=TASKS[task].one_loop) == cores
