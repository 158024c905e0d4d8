"""Where the CUDA provider will put each node of a graph, and what it will copy: predicted from the table of kernels.

The rules are those of ONNX Runtime's partitioning. A node with a kernel for its types goes to the device. From there
come back those that make shapes of shapes: nodes all of whose operands are in the host's memory, are constants or are
inputs of the graph, and one of which came from `Shape`. A value that is made on one side and read on the other is
copied, and each copy makes the host wait for the device at every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import onnx
from onnx import NodeProto, TensorProto, defs, shape_inference

from export.cuda.kernels import OPSET, HostOperands, KernelTable, host_name, load_kernels

_NONE = HostOperands(frozenset(), frozenset())
_NAMES = {
    TensorProto.FLOAT: "float",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.DOUBLE: "double",
    TensorProto.INT64: "int64",
    TensorProto.INT32: "int32",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "uint8",
    TensorProto.BOOL: "bool",
}


class Placement(NamedTuple):
    """Nodes as (name, operator), and copies as ("to host" or "from host", the value that is copied)."""

    num_device: int
    shapes: tuple[tuple[str, str], ...]
    """On the host because they make shapes; they cost no copy, and a CUDA graph may have them."""
    fallen_back: tuple[tuple[str, str], ...]
    """On the host because the device has no kernel for their types."""
    copies: tuple[tuple[str, str], ...]


def place(path: Path, table: KernelTable | None = None) -> Placement:
    """The placement of the graph in the file `path`, whose weights are not read."""
    return _Graph(onnx.load(path, load_external_data=False), table or load_kernels()).place()


class _Graph:
    def __init__(self, model: onnx.ModelProto, table: KernelTable) -> None:
        self._table = table
        graph = shape_inference.infer_shapes(model).graph
        self._types = {tensor.name: tensor.data_type for tensor in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            self._types[value.name] = value.type.tensor_type.elem_type
        self._inputs = {value.name for value in graph.input}
        self._constants = {tensor.name for tensor in graph.initializer}
        self._nodes = list[NodeProto]()
        for node in graph.node:  # in the order of computation
            if all(name in self._constants for name in node.input if name):
                self._constants.update(node.output)  # the runtime folds it
            else:
                self._nodes.append(node)

    def place(self) -> Placement:
        fallen = [node for node in self._nodes if not self._has_kernel(node)]
        names = {node.name for node in fallen}
        shapes = self._shapes([node for node in self._nodes if node.name not in names])
        on_host = names | {node.name for node in shapes}
        return Placement(
            len(self._nodes) - len(on_host),
            tuple((node.name, node.op_type) for node in shapes),
            tuple((node.name, node.op_type) for node in fallen),
            tuple(self._copies(on_host)),
        )

    def _host(self, node: NodeProto) -> HostOperands:
        return self._table.host.get(host_name(node.domain, node.op_type), _NONE)

    def _has_kernel(self, node: NodeProto) -> bool:
        kernels = self._table.kernels.get((node.domain, node.op_type), ())
        since = defs.get_schema(node.op_type, OPSET).since_version if not node.domain else 1
        types = self._type_parameters(node)
        return any(
            kernel.covers(since)
            and all(types[name] in allowed for name, allowed in kernel.types.items() if name in types)
            for kernel in kernels
        )

    def _type_parameters(self, node: NodeProto) -> dict[str, str]:
        """The data type of each type parameter of the operator's schema, where this node shows it."""
        if node.domain:
            first = _NAMES.get(self._types.get(node.input[0], 0))
            return {} if first is None else {"T": first, "T1": first}
        schema, types = defs.get_schema(node.op_type, OPSET), dict[str, str]()
        for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
            for place, name in enumerate(names):
                formal = formals[min(place, len(formals) - 1)]
                known = _NAMES.get(self._types.get(name, 0))
                if name and known is not None:
                    types.setdefault(formal.type_str, known)
        return types

    def _shapes(self, nodes: list[NodeProto]) -> list[NodeProto]:
        """The nodes that make shapes of shapes."""
        in_host = set[str]()
        found = []
        for node in nodes:
            host = self._host(node)
            in_host.update(node.output[place] for place in host.outputs)
            operands = {place: name for place, name in enumerate(node.input) if name}
            makes = any(name in in_host and place not in host.inputs for place, name in operands.items())
            stays = all(
                name in self._constants or name in self._inputs or (name in in_host and place not in host.inputs)
                for place, name in operands.items()
            )
            if makes and stays and not host.outputs:
                found.append(node)
                in_host.update(node.output)
        return found

    def _copies(self, on_host: set[str]) -> Iterator[tuple[str, str]]:
        made_on_device, made_on_host = set[str](), set[str]()
        read_on_device, read_on_host = set[str](), set[str]()
        order = list(self._inputs)
        for node in self._nodes:
            host, is_host = self._host(node), node.name in on_host
            for place, name in enumerate(node.input):
                if name and name not in self._constants:
                    (read_on_host if is_host or place in host.inputs else read_on_device).add(name)
            for place, name in enumerate(node.output):
                (made_on_host if is_host or place in host.outputs else made_on_device).add(name)
            order += node.output
        for name in order:
            if name in made_on_device and name in read_on_host:
                yield "to host", name
            elif name not in made_on_device and name in read_on_device and name in (made_on_host | read_on_host):
                yield "from host", name


def problems(path: Path, table: KernelTable | None = None) -> list[str]:
    """What would keep the graph at `path` from running wholly on a device, in words: copies, and missing kernels."""
    placement = place(path, table)
    version = (table or load_kernels()).version
    return [
        *(f"{path.name}: {name} is copied {where} at every run" for where, name in placement.copies),
        *(
            f"{path.name}: {name} ({operator}) has no CUDA kernel for its types in onnxruntime {version}"
            for name, operator in placement.fallen_back
        ),
    ]
