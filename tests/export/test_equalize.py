"""Encoders in int8: even channels, equal results, and the texts that they are measured on."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from export import equalize as equalizing
from export.calibration import TEXTS, Range, channel_ranges, text_ids
from export.cli import main
from export.convert import ExportOptions, export_bundle
from export.derived import constant, numbers, produced_by
from export.description import ExportError
from export.equalize import NUM_SPLITS, equalize, equalizing_factors, split_plan
from export.processor import int8_options
from export.projections import part_projections
from export.quantize import quantize
from export.session import SLOW_FUSIONS
from export.weights import WeightFile, bind_weights
from model.checkpoint import Checkpoint, save_checkpoint
from model.tokenizer import Tokenizer
from model.transformer import Transformer
from tests.export.models import make_encoder, stored, traced

BERT: dict[str, Any] = {
    "norm_order": "post",
    "positions": "learned",
    "scale_embeddings": False,
    "num_token_types": 2,
    "embedding_norm": True,
    "num_encoder_layers": 2,
}
TEXT_IDS = np.random.default_rng(0).integers(0, 40, (24, 12)).tolist()


def with_far_channels(**changes: Any) -> Transformer:
    """An encoder of which single channels reach ten times as far as the others, as in trained ones."""
    model = make_encoder(**BERT | changes)
    with torch.no_grad():
        for index in range(len(model.encoder_layers)):
            bias = model.get_parameter(f"encoder_layers.{index}.feed_forward.expand.bias")
            bias[3] += 6
            bias[7] += 4
            model.get_parameter(f"encoder_layers.{index}.self_attention_residual.norm.weight")[5] *= 12
    return model


def traced_encoder(**changes: Any) -> ir.Model:
    """The graph of `with_far_channels(**changes)`."""
    ((_, graph),) = traced(with_far_channels, **changes)
    return graph


def embeddings(graph: ir.Model, model: Transformer, folder: Path, rows: list[list[int]]) -> np.ndarray:
    """What the graph makes of rows of one length, after a way through its file."""
    file = WeightFile(folder)
    bind_weights(graph, stored(model), file)
    ir.save(graph, folder / "encoder.onnx")
    file.save()
    options = ort.SessionOptions()
    for name, value in int8_options().items():
        options.add_session_config_entry(name, value)
    session = ort.InferenceSession(folder / "encoder.onnx", options, disabled_optimizers=SLOW_FUSIONS)
    ids = np.array(rows)
    inputs = {"input_ids": ids, "lengths": np.full(len(ids), ids.shape[1]), "token_type_ids": np.zeros_like(ids)}
    found: np.ndarray = session.run(["embeddings"], {spec.name: inputs[spec.name] for spec in session.get_inputs()})[0]
    return found


def expected(model: Transformer, rows: list[list[int]]) -> np.ndarray:
    ids = torch.tensor(rows)
    with torch.inference_mode():
        states: np.ndarray = model.encode(ids, torch.full((len(rows),), ids.shape[1])).mean(1).numpy()
    return states


def smallest_cosine(left: np.ndarray, right: np.ndarray) -> float:
    lengths = np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1)
    return float(((left * right).sum(-1) / lengths).min())


@pytest.mark.parametrize(
    ("changes", "num_divisions"),
    [({"activation": "relu"}, 4), ({"norm_order": "pre"}, 0), ({"activation": "silu"}, 6)],
    ids=["post-norm", "pre-norm", "an activation that cannot be split"],
)
def test_an_equalised_graph_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], num_divisions: int
) -> None:
    monkeypatch.setattr(equalizing, "NUM_SPLITS", 0)
    model = with_far_channels(**changes)
    graph, weights = traced_encoder(**changes), stored(model)
    part_projections(graph, weights)
    ranges = equalize(graph, weights, channel_ranges(model, TEXT_IDS))
    divisions = [node.op_type for node in graph.graph if str(node.name).endswith(".equalizing")]
    assert divisions == ["Mul"] * num_divisions
    assert set(ranges) == {name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    found = embeddings(graph, model, tmp_path, TEXT_IDS)
    np.testing.assert_allclose(found, expected(model, TEXT_IDS), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("activation", "tolerance"), [("relu", 2e-5), ("gelu", 0.1)])
def test_split_channels_that_are_clipped_add_up_to_what_they_were(
    tmp_path: Path, activation: str, tolerance: float
) -> None:
    model = with_far_channels(activation=activation)
    graph, weights = traced_encoder(activation=activation), stored(model)
    channels = channel_ranges(model, TEXT_IDS)
    ranges = equalize(graph, weights, channels)
    for node in [node for node in graph.graph if node.op_type in ("Relu", "Gelu")]:
        expand = produced_by(node.inputs[0])
        assert expand is not None
        layer = 0 if "encoder_layers.0" in str(expand.weight.name) else 1
        module = f"encoder_layers.{layer}.feed_forward.contract"
        assert ranges[module].high < channels[module].highs.max() / 2
        (use,) = list(node.outputs[0].uses())
        limit = constant(graph.graph, f"limit.{layer}", np.array(ranges[module].high, np.float32))
        clip = ir.node("Clip", [node.outputs[0], None, limit], name=f"clip.{layer}")
        clip.outputs[0].name, clip.outputs[0].type = f"clipped.{layer}", node.outputs[0].type
        use.node.replace_input_with(0, clip.outputs[0])
        graph.graph.insert_before(use.node, clip)
    found = embeddings(graph, model, tmp_path, TEXT_IDS)
    np.testing.assert_allclose(found, expected(model, TEXT_IDS), rtol=0, atol=tolerance)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_int8_keeps_what_one_scale_loses(tmp_path: Path, activation: str) -> None:
    model = with_far_channels(activation=activation)
    channels, weights = channel_ranges(model, TEXT_IDS), stored(model)
    even, plain = traced_encoder(activation=activation), traced_encoder(activation=activation)
    part_projections(even, weights)
    quantize(even, weights, equalize(even, weights, channels))
    quantize(plain, weights, {name: Range(seen.lows.min(), seen.highs.max()) for name, seen in channels.items()})
    (tmp_path / "plain").mkdir()
    found = [embeddings(even, model, tmp_path, TEXT_IDS), embeddings(plain, model, tmp_path / "plain", TEXT_IDS)]
    losses = [1 - smallest_cosine(values, expected(model, TEXT_IDS)) for values in found]
    assert losses[0] < 0.5 * losses[1]


def test_int8_weights_are_within_half_a_step_everywhere() -> None:
    """The largest of each channel among them, which stands at the very end of the range."""
    graph, weights = traced_encoder(), stored(with_far_channels())
    part_projections(graph, weights)
    ranges = equalize(graph, weights, channel_ranges(with_far_channels(), TEXT_IDS))
    quantize(graph, weights, ranges)
    nodes = [node for node in graph.graph if node.op_type == "QuantizeLinear" and "axis" in node.attributes]
    assert len(nodes) >= 12
    for node in nodes:
        weight, scales = numbers(node.inputs[0]).astype(np.float64), numbers(node.inputs[1]).astype(np.float64)
        axis = node.attributes["axis"].as_int()
        steps = np.expand_dims(scales, 1 - axis)
        integers = np.clip(np.rint(weight / steps), np.iinfo(np.int8).min, np.iinfo(np.int8).max)
        assert (np.abs(integers * steps - weight) <= steps * (0.5 + 1e-4)).all()
        assert (np.abs(integers).max(axis=1 - axis) == np.iinfo(np.int8).max).all()  # and no range is left unused


@given(arrays(np.float32, st.integers(1, 64), elements=st.floats(-1, 30, width=32)))
def test_a_split_reaches_every_channel_with_the_columns_there_are(highs: np.ndarray) -> None:
    limit, copies = split_plan(highs)
    assert 0 <= copies.sum() <= NUM_SPLITS
    assert copies.min() >= 0
    assert np.all(np.maximum(highs, 0) <= limit * (copies + 1) * (1 + 1e-6))


def test_a_split_lowers_the_limit_as_far_as_its_columns_allow() -> None:
    highs = np.ones(100, np.float32)
    highs[7] = 9.0
    limit, copies = split_plan(highs)
    assert limit == 1.0
    assert copies[7] == copies.sum() == 8


def test_factors_are_powers_of_two_that_keep_the_size_of_the_weight() -> None:
    factors = equalizing_factors(np.array([1.0, 2.0, 30.0]), np.array([0.1, 0.2, 0.1]))
    assert np.all(np.log2(factors) == np.round(np.log2(factors)))
    assert factors[2] > factors[1] >= factors[0]
    assert abs(np.log2(factors).mean()) <= 0.5


def test_texts_are_read_line_by_line_with_special_tokens(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("the dog\n\nthe cat and the dog", encoding="utf-8")
    assert text_ids(tokenizer, file, 3) == [
        encoding.ids[:3] for encoding in tokenizer.encodings(["the dog", "the cat and"])
    ]
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no text to calibrate on"):
        text_ids(tokenizer, file, 3)


def test_the_texts_that_ship_are_of_all_kinds() -> None:
    texts = TEXTS.read_text("utf-8").splitlines()
    assert len(texts) > 200
    assert min(map(len, texts)) == 1
    assert max(map(len, texts)) > 500
    scripts = {unicodedata.name(letter).split()[0] for text in texts for letter in text if letter.isalpha()}
    assert {"LATIN", "CYRILLIC", "ARABIC", "CJK", "HANGUL", "DEVANAGARI"} <= scripts


@pytest.fixture
def embedder(tokenizer: Tokenizer) -> Checkpoint:
    model = make_encoder(vocab_size=tokenizer.vocab_size, **BERT)
    settings = {"pooling": "mean", "max_input_tokens": 32}
    return Checkpoint(model, tokenizer, {"task": "embed", "embedding": settings})


def test_an_encoder_is_measured_on_the_texts_of_its_user(embedder: Checkpoint, tmp_path: Path) -> None:
    save_checkpoint(embedder, tmp_path / "checkpoint")
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS.read_text("utf-8").splitlines()[100:200]), encoding="utf-8")
    arguments = [str(tmp_path / "checkpoint"), "--precision", "int8", "--calibration", str(file)]
    assert main([arguments[0], str(tmp_path / "mine"), *arguments[1:]]) == 0
    assert main([arguments[0], str(tmp_path / "usual"), "--precision", "int8"]) == 0
    graphs = [(tmp_path / name / "encoder.int8.onnx").read_bytes() for name in ("mine", "usual")]
    assert graphs[0] != graphs[1]


def test_a_missing_file_of_texts_is_refused(
    embedder: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(embedder, tmp_path / "checkpoint")
    arguments = [str(tmp_path / "checkpoint"), str(tmp_path / "bundle"), "--calibration", str(tmp_path / "none.txt")]
    assert main(arguments) == 1
    assert "none.txt" in capsys.readouterr().err


def test_texts_for_a_model_that_writes_its_own_are_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="calibration texts are for encoders; a model of architecture"):
        export_bundle(checkpoint, tmp_path / "bundle", ExportOptions(calibration=TEXTS))
