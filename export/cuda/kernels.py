"""The kernels of ONNX Runtime's CUDA provider, from a table that `python -m export.cuda.record` writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("kernels.tsv")

OPSET = 24
"""Of the standard operators whose kernels are in the table."""

Types = Mapping[str, frozenset[str]]
"""The data types that a kernel takes, by the name of the type parameter in the operator's schema."""


class Kernel(NamedTuple):
    """One kernel: `start` to `end` are the versions of the operator that it computes."""

    domain: str
    operator: str
    start: int
    end: int
    types: Types

    def covers(self, since: int) -> bool:
        """Whether it computes the operator as of version `since`; one without an end is for `start` alone."""
        return self.start <= since <= self.end and (self.start == since or self.end < _OPEN)


_OPEN = 2**31 - 1


class HostOperands(NamedTuple):
    """The inputs and outputs of an operator that the provider takes in host memory: those that decide shapes."""

    inputs: frozenset[int]
    outputs: frozenset[int]


def host_name(domain: str, operator: str) -> str:
    """The name of an operator in `KernelTable.host`."""
    return f"{domain}.{operator}" if domain else operator


class KernelTable(NamedTuple):
    """The kernels of one build, by domain and operator."""

    version: str
    kernels: Mapping[tuple[str, str], tuple[Kernel, ...]]
    host: Mapping[str, HostOperands]


@cache
def load_kernels(path: Path = TABLE) -> KernelTable:
    """The table at `path`."""
    version, kernels, host = "", dict[tuple[str, str], list[Kernel]](), dict[str, HostOperands]()
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, *fields = line.split("\t")
        if kind == "version":
            version = fields[0]
        elif kind == "host":
            operator, inputs, outputs = fields
            host[operator] = HostOperands(_numbers(inputs), _numbers(outputs))
        else:
            domain, operator, start, end, *types = fields
            pairs = (entry.split("=") for entry in types)
            parsed = {name: frozenset(names.split(",")) for name, names in pairs}
            kernels.setdefault((domain, operator), []).append(
                Kernel(domain, operator, int(start), int(end or _OPEN), parsed)
            )
    return KernelTable(version, {key: tuple(found) for key, found in kernels.items()}, host)


def save_kernels(path: Path, table: KernelTable) -> None:
    """Write `table` as lines of tab-separated fields, sorted, so that two versions can be compared."""
    lines = [f"version\t{table.version}"]
    for operator, operands in sorted(table.host.items()):
        lines.append(f"host\t{operator}\t{_list(operands.inputs)}\t{_list(operands.outputs)}")
    for kernel in sorted((kernel for found in table.kernels.values() for kernel in found), key=_order):
        types = (f"{name}={','.join(sorted(names))}" for name, names in sorted(kernel.types.items()))
        end = "" if kernel.end == _OPEN else str(kernel.end)
        lines.append("\t".join(("kernel", kernel.domain, kernel.operator, str(kernel.start), end, *types)))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _order(kernel: Kernel) -> tuple[object, ...]:
    return kernel[:4], sorted((name, sorted(names)) for name, names in kernel.types.items())


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(","))) if text else frozenset()


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))
