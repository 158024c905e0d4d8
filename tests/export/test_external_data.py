"""Which files a graph names, read off its bytes, and refused where that cannot be told."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from export.external_data import GraphFormatError, external_files


def tensor_in(location: str) -> TensorProto:
    tensor = TensorProto(name="weight", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "64"), ("length", "8")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def model_of(*initializers: TensorProto, nodes: tuple[onnx.NodeProto, ...] = ()) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph(nodes, "main", [], [], initializer=initializers))


def test_files_of_initializers_are_found() -> None:
    plain = helper.make_tensor("plain", TensorProto.FLOAT, [1], [1.0])
    model = model_of(tensor_in("weights.bin"), plain, tensor_in("../weights.int4.bin"))
    assert external_files(model.SerializeToString()) == {"weights.bin", "../weights.int4.bin"}
    assert external_files(model_of(plain).SerializeToString()) == set()


def test_files_of_nodes_and_inner_graphs_are_refused() -> None:
    constant = helper.make_node("Constant", [], ["value"], value=tensor_in("elsewhere.bin"))
    branch = helper.make_graph([], "branch", [], [], initializer=[tensor_in("elsewhere.bin")])
    for node in (constant, helper.make_node("If", ["condition"], [], then_branch=branch, else_branch=branch)):
        with pytest.raises(GraphFormatError, match="elsewhere than in the graph's initializers"):
            external_files(model_of(tensor_in("weights.bin"), nodes=(node,)).SerializeToString())


def test_a_second_name_in_one_entry_is_found_too() -> None:
    """The last value of a field counts, and an entry may say its file twice."""
    data = model_of(tensor_in("a.bin")).SerializeToString()
    other = TensorProto().external_data.add(key="location", value="b.bin").SerializeToString()
    entry = b"\x0a\x08location\x12\x05a.bin"
    doubled = entry + other[10:]
    assert data.count(entry) == 1
    # The lengths of the three messages around the entry grow with it.
    tensor = onnx.ModelProto.FromString(data).graph.initializer[0]
    raw = tensor.SerializeToString().replace(
        b"\x6a" + bytes([len(entry)]) + entry, b"\x6a" + bytes([len(doubled)]) + doubled
    )
    graph = b"\x2a" + bytes([len(raw)]) + raw
    assert external_files(b"\x3a" + bytes([len(graph)]) + graph) == {"a.bin", "b.bin"}


@pytest.mark.parametrize("data", [b"\x3a\x7f\x00", b"\x3b", b"\xff" * 12, b"\x3a" + b"\x80" * 11])
def test_what_is_no_graph_is_refused(data: bytes) -> None:
    with pytest.raises(GraphFormatError):
        external_files(data)


def test_the_graphs_of_a_bundle_name_its_weights_files(bundle_folder: Path) -> None:
    found = {path.name: external_files(path.read_bytes()) for path in bundle_folder.glob("*.onnx")}
    assert found.pop("decoder.int4.onnx") == {"weights.bin", "weights.int4.bin"}
    assert set(map(frozenset, found.values())) == {frozenset({"weights.bin"})}
