"""From checkpoint to bundle: shared weights, the same bytes twice, and what ONNX Runtime makes of the graphs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from export.bundle import load_bundle
from export.convert import ExportOptions, export_bundle
from export.description import ExportError
from export.quantize_blocks import BLOCK_SIZE
from model.checkpoint import Checkpoint


def graphs_of(folder: Path) -> dict[str, onnx.ModelProto]:
    return {path.name: onnx.load(path, load_external_data=False) for path in sorted(folder.glob("*.onnx"))}


def external_places(graph: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    places = {}
    for tensor in graph.graph.initializer:
        if tensor.external_data:
            entry = {item.key: item.value for item in tensor.external_data}
            assert entry["location"] == ("weights.int4.bin" if ".int4" in tensor.name else "weights.bin")
            places[tensor.name] = int(entry["offset"]), int(entry["length"])
    return places


def test_precisions_share_each_weight(bundle_folder: Path) -> None:
    places = {name: external_places(graph) for name, graph in graphs_of(bundle_folder).items()}
    for name in ("decoder_layers.0.feed_forward.expand.weight.transposed", "embedding.token.weight"):
        found = {places[f"decoder.{precision}.onnx"][name] for precision in ("fp32", "int8", "fp16")}
        assert len(found) == 1
    assert (
        places["encoder.fp32.onnx"]["embedding.token.weight"] == places["decoder.int8.onnx"]["embedding.token.weight"]
    )


def test_weights_file_holds_each_weight_once_in_its_own_type(checkpoint: Checkpoint, bundle_folder: Path) -> None:
    half_floats = sum(tensor.numel() for tensor in checkpoint.model.state_dict().values())
    positions = sum(buffer.numel() for buffer in checkpoint.model.buffers())
    places = external_places(graphs_of(bundle_folder)["decoder.int4.onnx"])
    packed = sum(length for name, (_, length) in places.items() if ".int4" in name)
    assert packed >= checkpoint.config.vocab_size * BLOCK_SIZE // 2
    padding = 64 * (len(checkpoint.model.state_dict()) + len(places))
    assert (bundle_folder / "weights.bin").stat().st_size <= 2 * half_floats + 4 * positions + padding
    assert packed <= (bundle_folder / "weights.int4.bin").stat().st_size <= packed + padding


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_loading_folds_casts_and_quantisation_of_weights(bundle_folder: Path, tmp_path: Path, name: str) -> None:
    """What is left at run time: one Cast of the rows looked up, and int8 products on int8 constants."""
    for precision in ("fp32", "int8"):
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        options.log_severity_level = 3
        ort.InferenceSession(bundle_folder / f"{name}.{precision}.onnx", options, providers=["CPUExecutionProvider"])
        nodes = onnx.load(tmp_path / "optimized.onnx", load_external_data=False).graph
        constants = {tensor.name: tensor.data_type for tensor in nodes.initializer}
        kinds = [node.op_type for node in nodes.node]
        assert kinds.count("Cast") == 1
        assert "DequantizeLinear" not in kinds
        products = [node for node in nodes.node if node.op_type in ("MatMul", "Gemm", "MatMulIntegerToFloat")]
        assert products
        for product in products:
            wanted = onnx.TensorProto.INT8 if precision == "int8" else onnx.TensorProto.FLOAT
            assert constants[product.input[1]] == wanted


def test_step_graph_has_no_shuffling_of_states(bundle_folder: Path) -> None:
    kinds = [node.op_type for node in graphs_of(bundle_folder)["decoder.fp32.onnx"].graph.node]
    assert not {"Transpose", "Slice", "Expand", "If", "Loop"} & set(kinds)
    # Two for each cross-attention, whose rows are read together by source, and one that counts tokens through all rows.
    assert kinds.count("Reshape") == 2 * kinds.count("Attention") // 2 + 1
    assert kinds.count("Range") == 1  # of the positions; rows are not counted
    assert kinds.count("TensorScatter") == 2
    assert kinds.count("Attention") == 2
    assert kinds.count("Split") == 1


def test_same_checkpoint_gives_the_same_bytes(checkpoint: Checkpoint, bundle_folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere" / "tiny"
    export_bundle(checkpoint, again, ExportOptions(precisions=("fp32", "int8", "int4", "fp16")))
    names = sorted(path.name for path in bundle_folder.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (again / name).read_bytes() == (bundle_folder / name).read_bytes(), name


def test_graphs_name_nothing_of_the_machine(bundle_folder: Path) -> None:
    for path in bundle_folder.glob("*.onnx"):
        data = path.read_bytes()
        assert not re.search(rb"/(home|root|tmp|usr|work)/|\.py\b|site-packages", data), path.name


def test_manifest_matches_graphs(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    decoder = bundle.graph("fp16", "decoder")
    assert {spec.name: spec.dtype for spec in decoder.inputs}["key_cache.0"] == "float16"
    assert {spec.name: spec.dtype for spec in decoder.outputs}["logits"] == "float32"
    assert {spec.name: spec.shape for spec in decoder.outputs}["candidate_ids"] == ("reads", "candidates")
    assert bundle.manifest.parity["fp32"].token_agreement == 1.0
    assert (bundle.manifest.parity["int8"].relative_error or 1.0) < 0.1
    assert (bundle.manifest.parity["int4"].relative_error or 1.0) < 0.15


def test_row_of_an_int8_batch_equals_the_row_alone(bundle_folder: Path) -> None:
    """Scales are fixed, so a neighbour with large values changes nothing."""
    session = ort.InferenceSession(bundle_folder / "encoder.int8.onnx", providers=["CPUExecutionProvider"])
    ids = np.random.default_rng(0).integers(0, 300, (5, 7))
    lengths = np.array([7, 2, 5, 1, 7])
    together = session.run(["cross_key.0"], {"input_ids": ids, "lengths": lengths})[0]
    for row, length in enumerate(lengths):
        alone = session.run(["cross_key.0"], {"input_ids": ids[row : row + 1], "lengths": lengths[row : row + 1]})[0]
        np.testing.assert_allclose(together[row, :length], alone[0, :length], rtol=0, atol=1e-5)


def test_force_does_not_replace_what_is_no_bundle(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious", "utf-8")
    with pytest.raises(ExportError, match="is not a bundle, so --force does not replace it"):
        export_bundle(checkpoint, tmp_path, ExportOptions(force=True))
    assert (tmp_path / "thesis.tex").read_text("utf-8") == "precious"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ExportOptions(precisions=("fp8",)), "precision fp8: allowed are fp32, int8, int4, fp16"),
        (ExportOptions(precisions=()), "precision missing"),
        (ExportOptions(num_candidates=0), "0 candidates a step cannot be chosen, allowed: 1 to"),
        (ExportOptions(num_candidates=10**6), "allowed: 1 to"),
    ],
)
def test_impossible_options_are_refused(
    checkpoint: Checkpoint, tmp_path: Path, options: ExportOptions, message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        export_bundle(checkpoint, tmp_path / "bundle", options)
    assert not (tmp_path / "bundle").exists()
