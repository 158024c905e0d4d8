"""Where nodes will run on CUDA: what the table says of our graphs, and that it says what a CUDA build does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from export.cuda import flash
from export.cuda.check import check_graph
from export.cuda.kernels import load_kernels, save_kernels
from export.cuda.observe import observe
from export.cuda.placement import Placement, place, problems
from export.description import ExportError
from export.manifest import DType
from tests.export.models import make_encoder, make_model, traced

DECODER: dict[str, Any] = {"architecture": "decoder", "num_encoder_layers": 0}
ROTARY = DECODER | {"positions": "rotary", "norm": "rms", "gated_feed_forward": True, "activation": "silu"}
KINDS: dict[str, dict[str, Any]] = {
    "translation": {},
    "large vocabulary": {"vocab_size": 4000},
    "learned positions": DECODER | {"positions": "learned"},
    "shared heads": ROTARY | {"num_kv_heads": 1},
    "norms of heads": ROTARY | {"query_key_norm": True},
    "bias by distance": {"positions": "none", "relative_bias": "shared"},
    "windows": ROTARY | {"attention_window": 4, "windowed_layers": (0,)},
}
WITH_BIAS = {"bias by distance", "windows"}
BUNDLES = Path(__file__).resolve().parents[3] / "bundles"
SHIPPED = sorted(path for path in BUNDLES.glob("*/*.onnx") if not path.stem.endswith((".int8", ".int4")))

needs_cuda_build = pytest.mark.skipif(
    "CUDAExecutionProvider" not in ort.get_available_providers(),
    reason="this ONNX Runtime has no CUDA provider: install onnxruntime-gpu, with a GPU or stub libraries of CUDA",
)


def graphs(folder: Path, dtype: DType, make: Any, changes: dict[str, Any]) -> list[Path]:
    paths = []
    for definition, graph in traced(make, dtype, **changes):
        paths.append(folder / f"{definition.name}.onnx")
        ir.save(graph, paths[-1])
    return paths


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_copied_and_every_operator_has_a_kernel(tmp_path: Path, kind: str, dtype: DType) -> None:
    for path in graphs(tmp_path, dtype, make_model, KINDS[kind]):
        assert problems(path) == []
        assert place(path).num_device > 10


def test_encoders_of_texts_stay_on_the_device(tmp_path: Path) -> None:
    for path in graphs(tmp_path, "float16", make_encoder, {"num_token_types": 2, "positions": "learned"}):
        assert problems(path) == []


def test_the_attention_graph_stays_on_the_device(with_attention: tuple[Any, Path]) -> None:
    assert problems(with_attention[1] / "attention.onnx") == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_shipped_graphs_stay_on_the_device(path: Path) -> None:
    assert problems(path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_attention_without_a_bias_can_be_flash_attention(tmp_path: Path, kind: str) -> None:
    found = [fault for path in graphs(tmp_path, "float16", make_model, KINDS[kind]) for fault in flash.faults(path, 8)]
    assert all("has a mask or a bias" in fault for fault in found)
    assert bool(found) == (kind in WITH_BIAS)


def test_flash_attention_has_conditions(tmp_path: Path) -> None:
    (path,) = graphs(tmp_path, "float32", make_model, KINDS["learned positions"])
    assert "computes in FLOAT" in flash.faults(path, 8)[0]
    (path,) = graphs(tmp_path, "float16", make_model, KINDS["learned positions"])
    assert "has heads of 512 numbers" in flash.faults(path, 512)[0]


def save(folder: Path, nodes: list[onnx.NodeProto]) -> Path:
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "t"]),
        helper.make_tensor_value_info("starts", TensorProto.INT64, ["b"]),
    ]
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.INT64, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    path = folder / "graph.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10), path)
    return path


def sum_with_a_shape(folder: Path) -> Path:
    """What decoders did: starts + T is made on the host, because T is there, and read where `starts` is too."""
    nodes = [
        helper.make_node("Shape", ["ids"], ["size"], "shape", start=1, end=2),
        helper.make_node("Add", ["starts", "size"], ["ends"], "sum"),
        helper.make_node("Neg", ["starts"], ["negative"], "neg"),
        helper.make_node("Mul", ["ends", "negative"], ["out"], "mul"),
    ]
    return save(folder, nodes)


def chosen_size(folder: Path) -> Path:
    """A size that the device computes and the host needs."""
    nodes = [
        helper.make_node("Neg", ["starts"], ["size"], "neg"),
        helper.make_node("TopK", ["ids", "size"], ["values", "out"], "top"),
    ]
    return save(folder, nodes)


def without_a_kernel(folder: Path) -> Path:
    return save(folder, [helper.make_node("BitwiseXor", ["ids", "ids"], ["out"], "xor")])


def test_what_would_be_copied(tmp_path: Path) -> None:
    found = place(sum_with_a_shape(tmp_path))
    assert found == Placement(3, (("sum", "Add"),), (), (("from host", "starts"), ("from host", "ends")))
    assert place(chosen_size(tmp_path)).copies == (("to host", "size"),)


def test_what_has_no_kernel(tmp_path: Path) -> None:
    path = without_a_kernel(tmp_path)
    assert place(path).fallen_back == (("xor", "BitwiseXor"),)
    assert problems(path) == [
        f"graph.onnx: xor (BitwiseXor) has no CUDA kernel for its types in onnxruntime {load_kernels().version}"
    ]


def test_the_exporter_refuses_what_would_be_slow(tmp_path: Path) -> None:
    config = make_model(**KINDS["learned positions"]).config
    with pytest.raises(ExportError, match="starts is copied from host at every run"):
        check_graph(sum_with_a_shape(tmp_path), "fp32", config)
    (path,) = graphs(tmp_path, "float32", make_model, KINDS["learned positions"])
    check_graph(path, "fp32", config)
    with pytest.raises(ExportError, match="computes in FLOAT, flash attention in float16 or bfloat16"):
        check_graph(path, "fp16", config)


def test_int8_is_not_for_cuda(bundle_folder: Path) -> None:
    missing = {operator for _, operator in place(bundle_folder / "decoder.int8.onnx").fallen_back}
    assert "MatMulIntegerToFloat" in missing


def test_the_table_is_written_as_it_is_read(tmp_path: Path) -> None:
    table = load_kernels()
    save_kernels(tmp_path / "again.tsv", table)
    assert load_kernels(tmp_path / "again.tsv") == table
    assert table.host["TopK"].inputs == {1}
    assert not table.host["TensorScatter"].inputs


@needs_cuda_build
@pytest.mark.parametrize("make", [sum_with_a_shape, chosen_size])
def test_a_cuda_build_does_what_is_told_of_small_graphs(tmp_path: Path, make: Any) -> None:
    agrees_with_the_build(make(tmp_path))


@needs_cuda_build
@pytest.mark.parametrize("kind", KINDS)
def test_a_cuda_build_does_what_is_told_of_ours(tmp_path: Path, kind: str) -> None:
    for path in graphs(tmp_path, "float16", make_model, KINDS[kind]):
        agrees_with_the_build(path)


def agrees_with_the_build(path: Path) -> None:
    told, seen = place(path), observe(str(path))
    where = {"to host": "MemcpyToHost", "from host": "MemcpyFromHost"}
    assert sorted(operator for _, operator in told.shapes + told.fallen_back) == sorted(seen.host.values())
    assert sorted((where[kind], name) for kind, name in told.copies) == sorted(seen.copies)
