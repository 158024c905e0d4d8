"""Decoders with GroupQueryAttention compute what the model does, are placed on a device whole, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from export.bundle import load_bundle
from export.convert import ExportOptions, export_bundle
from export.cuda.placement import problems
from export.description import ExportError
from export.group_query import use_group_query
from export.manifest import DType, GraphSpec, PrecisionSpec
from export.parity import check_parity
from export.upgrade import upgrade_bundle
from export.weights import WeightFile, bind_weights
from model.checkpoint import Checkpoint
from model.tokenizer import train
from tests.export.models import make_model, stored, traced

DECODER: dict[str, Any] = {"architecture": "decoder", "num_encoder_layers": 0, "num_decoder_layers": 2}
ROTARY = DECODER | {"positions": "rotary", "norm": "rms", "gated_feed_forward": True, "activation": "silu"}
KINDS: dict[str, dict[str, Any]] = {
    "translation": {"num_decoder_layers": 2},
    "learned positions": DECODER | {"positions": "learned"},
    "shared heads": ROTARY | {"num_heads": 2, "num_kv_heads": 1},
    "norms of heads": ROTARY | {"query_key_norm": True},
}


def export(folder: Path, dtype: DType, changes: dict[str, Any]) -> PrecisionSpec:
    model, file, specs = make_model(**changes), WeightFile(folder), {}
    weights = stored(model)
    for traced_definition, graph in traced(make_model, dtype, **changes):
        definition = traced_definition
        if definition.name == "decoder":
            definition = use_group_query(graph, definition, model.config)
        bind_weights(graph, weights, file)
        ir.save(graph, folder / f"{definition.name}.onnx")
        specs[definition.name] = GraphSpec(
            file=f"{definition.name}.onnx", inputs=definition.inputs, outputs=definition.outputs
        )
    file.save()
    return PrecisionSpec(graphs=specs)


@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_the_model_does(tmp_path: Path, kind: str) -> None:
    """In float32, where a fault is not hidden by rounding; rotation stands before it and is the same."""
    precision = export(tmp_path, "float32", KINDS[kind])
    report = check_parity(make_model(**KINDS[kind]), tmp_path, "fp32", precision, 8)
    assert report.sentence_agreement == 1.0
    operators = [node.op_type for node in onnx.load(tmp_path / "decoder.onnx").graph.node]
    assert operators.count("GroupQueryAttention") == 2
    assert operators.count("Attention") == (2 if kind == "translation" else 0)  # to the source
    assert "TensorScatter" not in operators


@pytest.mark.parametrize(
    ("kind", "dtype"), [("translation", "float16"), ("shared heads", "bfloat16"), ("norms of heads", "float16")]
)
def test_nothing_is_copied(tmp_path: Path, kind: str, dtype: DType) -> None:
    export(tmp_path, dtype, KINDS[kind])
    assert problems(tmp_path / "decoder.onnx") == []


def checkpoint(**changes: Any) -> Checkpoint:
    return Checkpoint(make_model(**ROTARY, vocab_size=300, **changes), train(["a b c"], 280), {"task": "generate"})


def test_half_precision_alone_has_it_and_an_upgrade_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    manifest = export_bundle(checkpoint(), folder, ExportOptions(precisions=("fp32", "fp16"), group_query=True))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert manifest.parity["fp16"].status == "passed"
    shapes = {name: load_bundle(folder).graph(name, "decoder").inputs[3].shape for name in ("fp32", "fp16")}
    assert shapes == {"fp32": ("batch", "capacity", 16), "fp16": ("batch", 2, "capacity", 8)}
    upgrade_bundle(folder, None, lambda _: None)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


@pytest.mark.parametrize(
    ("changes", "precisions", "message"),
    [
        ({}, ("fp32", "int8"), "it is for fp16 and bf16, and the precisions are fp32, int8"),
        ({"attention_window": 4, "windowed_layers": (0,)}, ("fp16",), "windowed_layers are given"),
        ({"relative_bias": "shared", "positions": "none"}, ("fp16",), "relative_bias is 'shared'"),
        ({"num_heads": 4}, ("fp16",), "head_size is 4, it must be a multiple of 8 up to 256"),
    ],
)
def test_what_the_operator_cannot_compute_is_refused(
    tmp_path: Path, changes: dict[str, Any], precisions: tuple[str, ...], message: str
) -> None:
    options = ExportOptions(precisions=precisions, group_query=True)
    model = make_model(**(ROTARY | {"vocab_size": 300} | changes))
    refused = Checkpoint(model, train(["a b c"], 280), {"task": "generate"})
    with pytest.raises(ExportError, match=f"^GroupQueryAttention cannot be written: {message}"):
        export_bundle(refused, tmp_path / "tiny", options)
