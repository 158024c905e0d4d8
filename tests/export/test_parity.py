"""ONNX Runtime computes what PyTorch does, for every option of the model, and a difference is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.comparison import ParityError
from export.graphs import graph_definitions
from export.manifest import PrecisionSpec
from export.parity import check_parity
from export.parity_encoder import check_encoder_parity
from export.session import GraphSession
from export.trace import trace
from export.weights import StoredWeights, WeightError, WeightFile, bind_weights
from model.layers import KeyValue
from model.pooling import Pooling
from tests.export.models import exported, make_encoder, make_model

TWO_LAYERS: dict[str, Any] = {
    "norm_order": "pre",
    "scale_embeddings": False,
    "tied_embeddings": False,
    "num_decoder_layers": 2,
}
OPTIONS: list[dict[str, Any]] = [
    {"norm_order": "pre", "activation": "relu", "positions": "sinusoidal", "tied_embeddings": True, "final_bias": True},
    {"norm_order": "post", "activation": "gelu", "positions": "learned", "tied_embeddings": False, "final_bias": False},
    {
        "norm_order": "post",
        "activation": "relu",
        "positions": "sinusoidal",
        "tied_embeddings": False,
        "final_bias": True,
    },
    {"norm_order": "pre", "activation": "gelu", "positions": "learned", "tied_embeddings": True, "final_bias": False},
    TWO_LAYERS,
    {"architecture": "decoder", "num_encoder_layers": 0, "activation": "gelu", "positions": "learned"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_every_option_survives_the_export(tmp_path: Path, options: dict[str, Any]) -> None:
    model, precision = exported(tmp_path, make_model, **options)
    report = check_parity(model, tmp_path, "fp32", precision, 16)
    assert report.largest_difference is not None
    assert report.largest_difference < 1e-4
    assert report.token_agreement == report.sentence_agreement == 1.0


@pytest.mark.parametrize("options", OPTIONS[:2], ids=["tied", "untied"])
def test_int8_stays_near(tmp_path: Path, options: dict[str, Any]) -> None:
    model, precision = exported(tmp_path, make_model, "int8", **options)
    report = check_parity(model, tmp_path, "int8", precision, 16)
    assert report.relative_error is not None
    assert 0 < report.relative_error < 0.15  # sixteen channels average little of the rounding out


@pytest.mark.parametrize("options", OPTIONS[:2], ids=["tied", "untied"])
def test_int4_decoders_of_an_int8_encoder_stay_near(tmp_path: Path, options: dict[str, Any]) -> None:
    model, precision = exported(tmp_path, make_model, "int4", **options)
    report = check_parity(model, tmp_path, "int4", precision, 16)
    assert report.relative_error is not None
    assert 0 < report.relative_error < 0.2


def test_steps_write_the_cache_in_place_at_each_rows_own_position(tmp_path: Path) -> None:
    model, precision = exported(tmp_path, make_model, **TWO_LAYERS)
    session = GraphSession(tmp_path / "decoder.onnx", precision.graphs["decoder"])
    random = np.random.default_rng(3)
    shapes = {"batch": 3, "sources": 3, "capacity": 9, "source": 4}
    state = {
        spec.name: random.standard_normal(
            [size if isinstance(size, int) else shapes[size] for size in spec.shape]
        ).astype(np.float32)
        for spec in session.spec.inputs
        if spec.dtype == "float32"
    }
    state["source_lengths"] = np.array([4, 1, 2])
    written, ids = np.array([0, 7, 3]), random.integers(0, 40, (3, 2))
    tensors = {name: torch.from_numpy(array.copy()) for name, array in state.items()}

    def layers(key: str, value: str) -> list[KeyValue]:
        return [KeyValue(tensors[f"{key}.{index}"], tensors[f"{value}.{index}"]) for index in range(2)]

    with torch.inference_mode():
        states, cache = model.decode(
            torch.from_numpy(ids),
            torch.from_numpy(written),
            layers("key_cache", "value_cache"),
            layers("cross_key", "cross_value"),
            tensors["source_lengths"],
        )
        logits = model.project(states[[0, 0, 1, 2], [0, 1, 0, 1]])
    before = state["key_cache.1"].copy()
    step = {"input_ids": ids, "write_indices": written, "read_indices": np.array([0, 1, 2, 5])}
    outputs = session.run({**step, "num_candidates": np.array([4]), **state})
    np.testing.assert_allclose(outputs["logits"], logits, atol=1e-4)
    for index in range(2):
        np.testing.assert_allclose(state[f"key_cache.{index}"], cache[index].key, atol=1e-5)
        np.testing.assert_allclose(state[f"value_cache.{index}"], cache[index].value, atol=1e-5)
    changed = (before != state["key_cache.1"]).any(-1)
    assert [list(np.flatnonzero(row)) for row in changed] == [[0, 1], [7, 8], [3, 4]]


def test_wrong_weights_are_refused(tmp_path: Path) -> None:
    model, precision = exported(tmp_path, make_model, **OPTIONS[0])
    with torch.no_grad():
        model.decoder_layers[0].feed_forward.expand.bias[0] += 0.5
    with pytest.raises(
        ParityError, match=r"precision fp32 differs too much .*numbers differ by .*relative error"
    ) as caught:
        check_parity(model, tmp_path, "fp32", precision, 16)
    assert "allowed" in str(caught.value)


def test_wrong_interface_is_reported_in_full(tmp_path: Path) -> None:
    model, precision = exported(tmp_path, make_model, **OPTIONS[0])
    decoder = precision.graphs["decoder"]
    renamed = decoder.inputs[0].model_copy(update={"name": "token_ids"})
    retyped = decoder.outputs[0].model_copy(update={"dtype": "float16"})
    changed = decoder.model_copy(
        update={"inputs": (renamed, *decoder.inputs[1:]), "outputs": (retyped, *decoder.outputs[1:])}
    )
    spec = PrecisionSpec(graphs=precision.graphs | {"decoder": changed})
    with pytest.raises(ParityError) as caught:
        check_parity(model, tmp_path, "fp32", spec, 16)
    message = str(caught.value)
    assert "lacks the input token_ids" in message
    assert "unknown input input_ids" in message
    assert "output logits is float32" in message


def test_constant_that_is_no_weight_is_refused(tmp_path: Path) -> None:
    model = make_model(d_ff=128, d_model=16)
    definition = graph_definitions(model, "float32")[0]
    with pytest.raises(WeightError, match=r"constants that are no weights of the checkpoint: .*8192 bytes"):
        bind_weights(trace(definition), StoredWeights({}), WeightFile(tmp_path))


ENCODERS: list[dict[str, Any]] = [
    {"norm_order": "post", "activation": "gelu", "positions": "learned", "embedding_norm": True, "num_token_types": 2},
    {"norm_order": "post", "activation": "gelu_tanh", "positions": "learned", "num_token_types": 1},
    {"norm_order": "pre", "activation": "silu", "positions": "sinusoidal", "num_encoder_layers": 2},
]


@pytest.mark.parametrize(
    ("options", "pooling"),
    # What is pooled are states, whatever made them: every pooling once, and every option once.
    [(ENCODERS[0], "mean"), (ENCODERS[0], "cls"), (ENCODERS[1], "last_token"), (ENCODERS[2], "mean")],
    ids=lambda value: value if isinstance(value, str) else str(value["activation"]),
)
def test_an_encoder_survives_the_export(tmp_path: Path, options: dict[str, Any], pooling: Pooling) -> None:
    model, precision = exported(tmp_path, make_encoder, pooling=pooling, **options)
    report = check_encoder_parity(model, tmp_path, "fp32", precision, pooling)
    assert report.largest_difference is not None
    assert report.largest_difference <= 1e-5
    assert report.smallest_cosine == pytest.approx(1.0, abs=1e-6)
    assert report.num_sentences == 10


def test_another_pooling_is_refused(tmp_path: Path) -> None:
    model, precision = exported(tmp_path, make_encoder, pooling="cls", **ENCODERS[0])
    with pytest.raises(ParityError, match=r"precision fp32 differs too much .* numbers differ by"):
        check_encoder_parity(model, tmp_path, "fp32", precision, "mean")


def test_an_int8_encoder_stays_near_and_a_text_equals_itself_in_any_batch(tmp_path: Path) -> None:
    model, precision = exported(tmp_path, make_encoder, "int8", **ENCODERS[0])
    report = check_encoder_parity(model, tmp_path, "int8", precision, "mean")
    assert report.smallest_cosine is not None
    assert 0.9 < report.smallest_cosine < 1.0
    session = GraphSession(tmp_path / "encoder.onnx", precision.graphs["encoder"])
    ids, types = np.array([[4, 5, 6, 0, 0], [9, 8, 7, 6, 5]]), np.zeros((2, 5), np.int64)
    both = session.run({"input_ids": ids, "lengths": np.array([3, 5]), "token_type_ids": types})["embeddings"]
    alone = session.run({"input_ids": ids[:1, :3], "lengths": np.array([3]), "token_type_ids": types[:1, :3]})
    np.testing.assert_allclose(both[:1], alone["embeddings"], atol=1e-6)
