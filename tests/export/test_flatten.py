"""Products of encoders with their bias inside: the same numbers, and the operators that are left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from export.flatten import flatten_products
from export.projections import fold_scales, part_projections
from export.session import Array
from export.weights import WeightFile, bind_weights
from tests.export.models import Make, make_encoder, make_model, stored, traced

MODELS: list[tuple[Make, dict[str, Any]]] = [
    (make_model, {}),
    (make_encoder, {"num_token_types": 2, "activation": "gelu"}),
]


def graph_of(folder: Path, make: Make, changes: dict[str, Any], *, flat: bool) -> onnx.ModelProto:
    folder.mkdir()
    weights, file = stored(make(**changes)), WeightFile(folder)
    definition, graph = traced(make, **changes)[0]
    assert definition.name == "encoder"
    part_projections(graph, weights)
    fold_scales(graph, weights)
    if flat:
        flatten_products(graph)
    bind_weights(graph, weights, file)
    ir.save(graph, folder / "encoder.onnx")
    file.save()
    return onnx.load(folder / "encoder.onnx")


def run(folder: Path, ids: Array, lengths: Array) -> list[Array]:
    session = ort.InferenceSession(folder / "encoder.onnx", providers=["CPUExecutionProvider"])
    feeds = {"input_ids": ids, "lengths": lengths}
    if "token_type_ids" in {value.name for value in session.get_inputs()}:
        feeds["token_type_ids"] = ids % 2
    results: list[Array] = session.run(None, feeds)
    return results


@pytest.mark.parametrize(("make", "changes"), MODELS)
def test_the_same_numbers_come_out_whatever_the_shape(tmp_path: Path, make: Make, changes: dict[str, Any]) -> None:
    for name, flat in (("plain", False), ("flat", True)):
        graph_of(tmp_path / name, make, changes, flat=flat)
    random = np.random.default_rng(0)
    for shape in ((1, 1), (3, 5), (5, 3)):
        ids, lengths = random.integers(0, 40, shape), random.integers(1, shape[1] + 1, shape[0])
        expected, found = (run(tmp_path / name, ids, lengths) for name in ("plain", "flat"))
        assert [array.shape for array in found] == [array.shape for array in expected]
        for plain, flat_result in zip(expected, found, strict=True):
            np.testing.assert_allclose(flat_result, plain, atol=2e-6)


@pytest.mark.parametrize(("make", "changes"), MODELS)
def test_every_product_with_a_bias_becomes_one_operator(tmp_path: Path, make: Make, changes: dict[str, Any]) -> None:
    plain, flat = (
        Counter(node.op_type for node in graph_of(tmp_path / name, make, changes, flat=name == "flat").graph.node)
        for name in ("plain", "flat")
    )
    biased = plain["Add"] - flat["Add"]
    assert flat["Gemm"] == biased == plain["MatMul"] - flat["MatMul"]
    # query, key, value, output, expand and contract of the one layer, and the cross projections of the decoder's
    assert biased >= 6
    # those of one input share its flat form, and all share the shape to go back to
    assert flat["Flatten"] < flat["Gemm"]
    assert flat["Shape"] == plain["Shape"] + 1
    assert not [node for node in plain if node == "Gemm"]
