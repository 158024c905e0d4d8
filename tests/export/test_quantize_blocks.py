"""int4: how weights are rounded and packed, what ONNX Runtime makes of them, and what a bundle holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray

from export.bundle import load_bundle
from export.convert import ExportOptions, export_bundle
from export.derived import constant
from export.description import ExportError
from export.projections import fold_scales
from export.quantize_blocks import BLOCK_SIZE, quantize_blocks, to_blocks
from export.weights import StoredWeights, WeightFile, bind_weights
from model.checkpoint import Checkpoint
from model.tokenizer import Tokenizer
from tests.export.models import make_encoder, make_model, stored, traced
from tests.export.rounded import rounded_states, unpacked
from tests.export.test_decoder_parity import DECODER

Matrix = NDArray[np.float32]


def drawn(*shape: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("num_inputs", [1, 127, 128, 129, 300])
def test_a_weight_is_at_most_half_a_step_from_where_it_was(num_inputs: int) -> None:
    weight = drawn(num_inputs, 7)
    blocks = to_blocks(weight)
    num_blocks = -(-num_inputs // BLOCK_SIZE)
    assert blocks.packed.shape == (7, num_blocks, BLOCK_SIZE // 2)
    assert blocks.scales.shape == (7, num_blocks)
    steps = np.abs(blocks.scales).repeat(BLOCK_SIZE, axis=1)[:, :num_inputs].T
    # A weight as far out as the furthest, on its other side, has no step of its own.
    distance = np.abs(unpacked(blocks, num_inputs) - weight)
    assert (distance <= np.where(np.abs(weight) > 7.5 * steps, 1.0, 0.5001) * steps).all()


def test_the_furthest_weight_of_a_block_keeps_its_value_and_sign() -> None:
    weight = drawn(256, 5)
    weight[3], weight[200] = 9.0, -9.0
    again = unpacked(to_blocks(weight), 256)
    np.testing.assert_array_equal(again[[3, 200]], weight[[3, 200]])


def test_padding_and_blocks_of_zeros_stay_zero() -> None:
    weight = drawn(130, 2)
    weight[:128, 0] = 0
    blocks = to_blocks(weight)
    assert (blocks.packed[0, 0] == 0x88).all()
    assert (blocks.packed[:, 1, 1:] == 0x88).all()
    assert np.isfinite(blocks.scales).all()
    assert (unpacked(blocks, 130)[:128, 0] == 0).all()


def test_the_earlier_weight_is_the_lower_half_of_a_byte() -> None:
    weight = np.zeros((4, 1), np.float32)
    weight[:, 0] = [-8, -7, 1, 7]
    blocks = to_blocks(weight)
    assert blocks.scales.tolist() == [[1.0]]
    assert blocks.packed[0, 0, :2].tolist() == [0x10, 0xF9]


def products(weight: Matrix, bias: Matrix | None, transposed: bool) -> ir.Model:
    """One product, written as the tracer writes it."""
    num_inputs, num_outputs = weight.shape
    states = ir.Value(name="states", shape=ir.Shape(["rows", num_inputs]), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([states], [], nodes=[], opset_imports={"": 24}, name="graph")
    matrix = constant(graph, "weight", np.ascontiguousarray(weight.T) if transposed else weight)
    inputs = [states, matrix]
    if transposed:
        inputs += [] if bias is None else [constant(graph, "bias", bias)]
        nodes = [ir.node("Gemm", inputs, attributes={"transB": 1}, name="product")]
    else:
        nodes = [ir.node("MatMul", inputs, name="product")]
        if bias is not None:
            nodes.append(ir.node("Add", [nodes[0].outputs[0], constant(graph, "bias", bias)], name="sum"))
    graph.extend(nodes)
    result = nodes[-1].outputs[0]
    result.name, result.dtype, result.shape = "result", ir.DataType.FLOAT, ir.Shape(["rows", num_outputs])
    graph.outputs.append(result)
    return ir.Model(graph, ir_version=11)


@pytest.mark.parametrize("num_inputs", [16, 128, 200])
@pytest.mark.parametrize("transposed", [False, True], ids=["MatMul", "Gemm"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
def test_onnx_runtime_multiplies_by_the_rounded_weights(
    tmp_path: Path, num_inputs: int, transposed: bool, with_bias: bool
) -> None:
    weight, states = drawn(num_inputs, 36), drawn(9, num_inputs, seed=1)
    bias = drawn(36, seed=2) if with_bias else None
    model = products(weight, bias, transposed)
    quantize_blocks(model, StoredWeights({"product.weight": np.ascontiguousarray(weight.T)}))
    (node,) = model.graph
    assert node.op_type == "MatMulNBits"
    assert "weight" not in model.graph.initializers
    ir.save(model, tmp_path / "graph.onnx")
    session = ort.InferenceSession(tmp_path / "graph.onnx", providers=["CPUExecutionProvider"])
    (together,) = session.run(None, {"states": states})
    inputs = rounded_states(torch.from_numpy(states)).numpy()
    expected = inputs @ unpacked(to_blocks(weight), num_inputs) + (0 if bias is None else bias)
    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-4)
    for row in range(len(states)):
        (alone,) = session.run(None, {"states": states[row : row + 1]})
        np.testing.assert_allclose(alone[0], together[row], rtol=0, atol=1e-4)


WIDE: dict[str, Any] = DECODER | {"d_model": 128, "d_ff": 256, "vocab_size": 64}
"""Wide enough that no packed matrix is small enough to stand in a graph."""


def test_a_decoder_has_packed_weights_alone_and_its_table_of_embeddings(tmp_path: Path) -> None:
    ((_, graph),) = traced(make_model, **WIDE)
    model, file = make_model(**WIDE), WeightFile(tmp_path)
    weights = stored(model)
    fold_scales(graph, weights)
    num_products = sum(node.op_type in ("MatMul", "Gemm") for node in graph.graph)
    quantize_blocks(graph, weights)
    bind_weights(graph, weights, file)
    kinds = [node.op_type for node in graph.graph]
    assert not {"MatMul", "Gemm"} & set(kinds)
    assert kinds.count("MatMulNBits") == num_products
    matrices = sum(parameter.numel() for parameter in model.parameters() if parameter.ndim == 2)
    rest = sum(tensor.numel() for tensor in [*model.parameters(), *model.buffers()] if tensor.ndim == 1)
    rest += model.embedding.token.weight.numel() + model.embedding.position.numel()
    needed = matrices // 2 + 4 * (matrices // BLOCK_SIZE + rest)
    assert needed * 0.9 < file.save().stat().st_size <= needed + 64 * len(model.state_dict())


def test_a_second_product_with_the_same_weight_shares_its_packed_form(tmp_path: Path) -> None:
    weight, file = drawn(256, 64), WeightFile(tmp_path)
    model, weights = products(weight, None, False), StoredWeights({"product.weight": np.ascontiguousarray(weight.T)})
    (product,) = model.graph
    again = ir.node("MatMul", list(product.inputs), name="again")
    again.outputs[0].name = "again"
    model.graph.append(again)
    model.graph.outputs.append(again.outputs[0])
    assert quantize_blocks(model, weights) == {"product.weight"}
    bind_weights(model, weights, file)
    assert [node.op_type for node in model.graph] == ["MatMulNBits"] * 2
    assert len(model.graph.initializers) == 2
    assert file.save().stat().st_size == 256 * 64 // 2


@pytest.fixture(scope="module")
def encoder(tokenizer: Tokenizer) -> Checkpoint:
    metadata = {"task": "embed", "embedding": {"pooling": "mean", "max_input_tokens": 16}}
    return Checkpoint(make_encoder(vocab_size=tokenizer.vocab_size), tokenizer, metadata)


def test_encoders_are_refused_with_what_is_allowed(encoder: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"int4 is for decoders.* allowed are fp32, int8, fp16, bf16$"):
        export_bundle(encoder, tmp_path / "bundle", ExportOptions(precisions=("fp32", "int4")))
    assert not (tmp_path / "bundle").exists()


def test_the_encoder_of_a_translation_model_stays_int8(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    encoders = [ir.load(bundle.graph_path(name, "encoder")) for name in ("int8", "int4")]
    kinds = [[node.op_type for node in model.graph] for model in encoders]
    assert kinds[0] == kinds[1]
    assert "MatMulIntegerToFloat" in kinds[0]
    decoder = ir.load(bundle.graph_path("int4", "decoder"))
    assert "MatMulNBits" in [node.op_type for node in decoder.graph]
