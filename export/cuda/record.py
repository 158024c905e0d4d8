"""`python -m export.cuda.record`: write the table of kernels anew, where an ONNX Runtime with CUDA is installed.

The runtime lists its kernels, but not which operands it takes in host memory. Those are found by trial: a graph
of one operator, whose operand a device computes, has a copy to the host exactly where the operand belongs there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from export.cuda.kernels import OPSET, TABLE, HostOperands, Kernel, KernelTable, host_name, save_kernels
from export.cuda.observe import observe

_FLOAT, _INT64 = TensorProto.FLOAT, TensorProto.INT64
_DOMAINS = {"": OPSET, "com.microsoft": 1}


class Trial(NamedTuple):
    """An operator with inputs of these types and numbers of dimensions, and its attributes."""

    operator: str
    inputs: Sequence[tuple[int, int] | None]
    num_outputs: int = 1
    attributes: Mapping[str, Any] = {}
    domain: str = ""


_HALVES, _CACHE, _SHORTS = (TensorProto.FLOAT16, 3), (TensorProto.FLOAT16, 4), (TensorProto.INT32, 1)
_ROW, _MATRIX, _CUBE, _NUMBERS, _NUMBER = (_FLOAT, 1), (_FLOAT, 2), (_FLOAT, 3), (_INT64, 1), (_INT64, 0)

TRIALS = (
    Trial("Attention", [_CUBE, _CUBE, _CUBE, None, None, None, _NUMBERS], 1, {"q_num_heads": 1, "kv_num_heads": 1}),
    Trial("ConstantOfShape", [_NUMBERS]),
    Trial("CumSum", [_MATRIX, _NUMBER]),
    Trial("Expand", [_MATRIX, _NUMBERS]),
    Trial("Gather", [_MATRIX, _NUMBERS]),
    Trial("GatherElements", [_MATRIX, (_INT64, 2)]),
    Trial("GatherND", [_CUBE, (_INT64, 3)], 1, {"batch_dims": 1}),
    Trial("OneHot", [_NUMBERS, _NUMBER, _NUMBERS]),
    Trial("Pad", [_MATRIX, _NUMBERS]),
    Trial("Range", [_NUMBER, _NUMBER, _NUMBER]),
    Trial("ReduceMax", [_CUBE, _NUMBERS]),
    Trial("ReduceMean", [_CUBE, _NUMBERS]),
    Trial("ReduceSum", [_CUBE, _NUMBERS]),
    Trial("Reshape", [_MATRIX, _NUMBERS]),
    Trial("RotaryEmbedding", [_CUBE, _MATRIX, _MATRIX, (_INT64, 2)], 1, {"num_heads": 1}),
    Trial("ScatterElements", [_MATRIX, (_INT64, 2), _MATRIX]),
    Trial("ScatterND", [_MATRIX, (_INT64, 2), _MATRIX]),
    Trial("Shape", [_MATRIX]),
    Trial("Size", [_MATRIX]),
    Trial("Slice", [_MATRIX, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS]),
    Trial("Split", [_MATRIX, _NUMBERS], 2),
    Trial("Squeeze", [_MATRIX, _NUMBERS]),
    Trial("TensorScatter", [_CUBE, _CUBE, _NUMBERS], 1, {"axis": 1}),
    Trial("Tile", [_MATRIX, _NUMBERS]),
    Trial("TopK", [_MATRIX, _NUMBERS], 2),
    Trial("Trilu", [_MATRIX, _NUMBER]),
    Trial("Unsqueeze", [_MATRIX, _NUMBERS]),
    Trial(
        "GroupQueryAttention",
        [_HALVES, _HALVES, _HALVES, _CACHE, _CACHE, _SHORTS, _SHORTS],
        3,
        {"num_heads": 1, "kv_num_heads": 1},
        "com.microsoft",
    ),
)
"""The operators of our graphs that take whole numbers, or give them, of which shapes could be made."""

_WHOLE = (TensorProto.INT64, TensorProto.INT32)


def main() -> None:
    """Write the table, and print a summary."""
    table = KernelTable(
        ort.__version__, _kernels(), {host_name(trial.domain, trial.operator): _try(trial) for trial in TRIALS}
    )
    save_kernels(TABLE, table)
    print(f"{TABLE}: {sum(map(len, table.kernels.values()))} kernels of onnxruntime {table.version}")


def _kernels() -> dict[tuple[str, str], tuple[Kernel, ...]]:
    from onnxruntime.capi import _pybind_state  # noqa: PLC0415  no public interface lists kernels

    kernels = dict[tuple[str, str], list[Kernel]]()
    for found in _pybind_state.get_all_opkernel_def():
        start, end = found.version_range
        version = _DOMAINS.get(found.domain)
        if found.provider != "CUDAExecutionProvider" or version is None or not start <= version <= end:
            continue
        types = {
            name: frozenset(kind.removeprefix("tensor(").removesuffix(")") for kind in kinds)
            for name, kinds in found.type_constraints.items()
        }
        kernel = Kernel(found.domain, found.op_name, start, end, types)
        kernels.setdefault((found.domain, found.op_name), []).append(kernel)
    return {key: tuple(found) for key, found in kernels.items()}


def _try(trial: Trial) -> HostOperands:
    inputs = frozenset(
        place
        for place, kind in enumerate(trial.inputs)
        if kind is not None and kind[0] in _WHOLE and _is_copied(trial, place)
    )
    return HostOperands(inputs, frozenset({0} if trial.operator in ("Shape", "Size") else ()))


def _is_copied(trial: Trial, place: int) -> bool:
    """Whether a copy to the host appears where a device computes the operand."""
    names = [None if kind is None else f"input_{number}" for number, kind in enumerate(trial.inputs)]
    nodes = [helper.make_node("Neg", [names[place] or ""], ["computed"])]
    operands = ["computed" if number == place else name or "" for number, name in enumerate(names)]
    outputs = [f"output_{number}" for number in range(trial.num_outputs)]
    nodes.append(helper.make_node(trial.operator, operands, outputs, domain=trial.domain, **trial.attributes))
    declared = [
        helper.make_tensor_value_info(name, kind[0], [f"{name}_{axis}" for axis in range(kind[1])])
        for name, kind in zip(names, trial.inputs, strict=True)
        if name is not None and kind is not None
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "trial", declared, results)
    opsets = [helper.make_opsetid(domain, version) for domain, version in _DOMAINS.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    return any(kind == "MemcpyToHost" for kind, _ in observe(model.SerializeToString()).copies)


if __name__ == "__main__":
    main()
