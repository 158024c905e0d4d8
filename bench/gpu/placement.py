"""Where each node of each graph runs, and what the device is asked to do: from profiles, not from what is hoped for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bench.gpu.graphs import run_attention, run_graphs
from bench.gpu.run import Run
from bench.gpu.steps import StepShape, open_step
from export.bundle import Bundle, load_bundle
from service.runtime.graphs import open_session

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

_ROWS, _LENGTH, _STEPS = 2, 8, 3
_SHAPE_ELEMENTS = 64
"""A node whose results are so few whole numbers is arithmetic on shapes, which the provider leaves to the host."""
_NUMBERS = ("float", "float16", "double", "bfloat16")
_ATTENTION = ("flash", "fmha", "attention", "softmax")


@dataclass(frozen=True)
class Node:
    """A node as a profile saw it run: `kind` is device, copy, host or fell_back."""

    name: str
    operator: str
    provider: str
    kind: str


@dataclass(frozen=True)
class Kernel:
    """What ran on the device under one name, per step."""

    name: str
    calls: float
    microseconds: float


def measure_placement(run: Run) -> None:
    """A row for each graph of the shipped bundles and of the measured models, in each precision."""
    paths = [*run.bundles, *(model.bundle for model in run.models.values())]
    for bundle in map(load_bundle, paths):
        for precision in run.precisions:
            if run.record.is_late:
                run.record.leave_out(f"{bundle.name} in {precision}", "no time was left")
            elif precision not in bundle.precisions:
                run.record.leave_out(f"{bundle.name} in {precision}", "the bundle lacks it")
            else:
                _place(run, bundle, precision)


def _place(run: Run, bundle: Bundle, precision: str) -> None:
    kernels = step_kernels(bundle, precision, run.device)
    for graph, nodes in profiled_nodes(bundle, precision, run.device).items():
        is_last = graph == ("encoder" if bundle.config.architecture == "encoder" else "decoder")
        run.record.add(
            {
                "bundle": bundle.name,
                "precision": precision,
                "graph": graph,
                "on_device": sum(node.kind == "device" for node in nodes),
                "copies": sum(node.kind == "copy" for node in nodes),
                "host": _operators(nodes, "host"),
                "fell_back": _operators(nodes, "fell_back"),
                "attention": attention_kernels(kernels) if is_last else None,
                "nodes": [asdict(node) for node in nodes],
                "kernels": [asdict(kernel) for kernel in kernels] if is_last else [],
            }
        )


def _operators(nodes: Iterable[Node], kind: str) -> list[str]:
    return sorted({node.operator for node in nodes if node.kind == kind})


def profiled_nodes(bundle: Bundle, precision: str, device: str) -> dict[str, list[Node]]:
    """The nodes of each graph, by the graph's name, as the runtime's own profile of a few steps has them."""
    ids = [[bundle.config.vocab_size - 1 - place for place in range(_LENGTH)]] * _ROWS
    targets = [row[:_STEPS] for row in ids]
    sessions: list[tuple[Path, Any]] = []
    with TemporaryDirectory() as folder:

        def open_graph(path: Path) -> Any:
            session = open_session(path, device, 1, profile=Path(folder) / path.stem)
            sessions.append((path, session))
            return session

        run_graphs(bundle, precision, open_graph, ids, targets)
        if bundle.manifest.attention is not None and precision == "fp32":
            run_attention(bundle, open_graph, ids[:1], targets[:1])
        return {
            path.name.split(".")[0]: read_profile(Path(session.end_profiling()), PROVIDERS[device])
            for path, session in sessions
        }


def read_profile(path: Path, provider: str) -> list[Node]:
    """Every node of a profile of ONNX Runtime, once."""
    nodes = {}
    for event in json.loads(path.read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            found, arguments = event["name"].removesuffix("_kernel_time"), event["args"]
            operator, where = arguments["op_name"], arguments["provider"]
            kind = kind_of(operator, where, provider, arguments.get("output_type_shape", []))
            nodes[found] = Node(found, operator, where, kind)
    return list(nodes.values())


def kind_of(operator: str, where: str, provider: str, outputs: Sequence[Mapping[str, Sequence[int]]]) -> str:
    """`outputs` are the shapes of a node's results, each under the name of its type."""
    if operator.startswith("Memcpy"):
        return "copy"
    if where == provider:
        return "device"
    types = [(kind, math.prod(shape)) for output in outputs for kind, shape in output.items()]
    is_shape = all(kind not in _NUMBERS and size <= _SHAPE_ELEMENTS for kind, size in types)
    return "host" if types and is_shape else "fell_back"


def step_kernels(bundle: Bundle, precision: str, device: str) -> list[Kernel]:
    """What a step, or a batch of an encoder, launches on the device, the longest first; empty on a processor."""
    work = open_step(bundle, precision, device, StepShape(_ROWS, _LENGTH, _LENGTH))
    work()
    return kernels_of(partial(_repeat, work), device)


def _repeat(work: Callable[[], object]) -> None:
    for _ in range(_STEPS):
        work()


def kernels_of(work: Callable[[], object], device: str) -> list[Kernel]:
    """PyTorch's profiler sees all kernels of the process, also those of ONNX Runtime."""
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        work()
        if device == "cuda":
            torch.cuda.synchronize()
    seen: dict[str, list[float]] = {}
    for event in profiler.events() or []:
        if event.device_type.name == "CUDA":
            seen.setdefault(event.name, []).append(event.device_time)
    kernels = [Kernel(name, len(times) / _STEPS, sum(times) / _STEPS) for name, times in seen.items()]
    return sorted(kernels, key=lambda kernel: -kernel.microseconds)


def attention_kernels(kernels: Iterable[Kernel]) -> list[str]:
    """Names of those that compute attention; `flash` in one says that the fast path was taken."""
    return sorted({kernel.name[:80] for kernel in kernels if any(part in kernel.name.lower() for part in _ATTENTION)})
