"""int8 products on the processor that runs the tests, and on others by what they say of themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from export.derived import constant
from export.processor import _saturates, int8_options


@pytest.mark.parametrize(
    ("machine", "cpu_info", "expected"),
    [
        ("x86_64", "flags\t\t: fpu sse avx2 avx512f avx512_vnni\n", False),
        ("AMD64", "flags : avx2 avx_vnni\n", False),
        ("x86_64", "model name : some VNNI\nflags : fpu avx2 avx512f\n", True),
        ("x86_64", "", True),
        ("aarch64", "Features : asimd\n", False),
    ],
)
def test_only_x86_without_vnni_saturates(tmp_path: Path, machine: str, cpu_info: str, expected: bool) -> None:
    (tmp_path / "cpuinfo").write_text(cpu_info)
    assert _saturates(machine, tmp_path / "cpuinfo") is expected


def test_an_x86_processor_that_says_nothing_is_not_trusted(tmp_path: Path) -> None:
    assert _saturates("x86_64", tmp_path / "missing")


def test_the_largest_products_are_exact_here(tmp_path: Path) -> None:
    states = ir.Value(name="states", shape=ir.Shape(["rows", 64]), type=ir.TensorType(ir.DataType.UINT8))
    graph = ir.Graph([states], [], nodes=[], opset_imports={"": 24}, name="graph")
    node = ir.node("MatMulInteger", [states, constant(graph, "weight", np.full((64, 32), 127, np.int8))])
    graph.append(node)
    node.outputs[0].name, node.outputs[0].dtype = "sums", ir.DataType.INT32
    node.outputs[0].shape = ir.Shape(["rows", 32])
    graph.outputs.append(node.outputs[0])
    ir.save(ir.Model(graph, ir_version=11), tmp_path / "graph.onnx")
    options = ort.SessionOptions()
    for name, value in int8_options().items():
        options.add_session_config_entry(name, value)
    session = ort.InferenceSession(tmp_path / "graph.onnx", options, providers=["CPUExecutionProvider"])
    (sums,) = session.run(None, {"states": np.full((8, 64), 255, np.uint8)})
    assert (sums == 64 * 255 * 127).all()
