"""What today's decoders need, exported: rotary positions, RMSNorm, gates, shared heads, a head of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from export.parity import check_parity
from model.rotary import RotaryScaling
from tests.export.models import exported, make_model, traced
from tests.export.rounded import rounded_decoder

DECODER: dict[str, Any] = {"architecture": "decoder", "num_encoder_layers": 0, "num_decoder_layers": 2}
LLAMA: dict[str, Any] = DECODER | {
    "positions": "rotary",
    "norm": "rms",
    "activation": "silu",
    "gated_feed_forward": True,
    "num_heads": 4,
    "num_kv_heads": 2,
    "query_key_value_bias": False,
    "attention_output_bias": False,
    "feed_forward_bias": False,
    "final_bias": False,
    "scale_embeddings": False,
    "tied_embeddings": False,
}
T5: dict[str, Any] = {
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "positions": "none",
    "relative_bias": "shared",
    "relative_buckets": 8,
    "relative_max_distance": 12,
    "attention_scale": 1.0,
    "head_dim": 6,
    "norm": "rms",
    "query_key_value_bias": False,
    "attention_output_bias": False,
    "feed_forward_bias": False,
    "activation": "gelu_tanh",
    "gated_feed_forward": True,
    "scale_embeddings": False,
    "scale_projection": True,
    "final_bias": False,
}
MARIAN: dict[str, Any] = {"norm_order": "post", "activation": "silu", "sinusoids": "halves"}
OPTIONS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "bias-tied": LLAMA | {"query_key_value_bias": True, "tied_embeddings": True},
    "head-norm": LLAMA | {"query_key_norm": True, "head_dim": 6, "num_kv_heads": 1},
    "scaled": LLAMA | {"rotary_scaling": RotaryScaling("linear", factor=2.0, attention_factor=1.2)},
    "gpt2": DECODER | {"positions": "learned", "activation": "gelu_tanh", "final_bias": False},
    "rotary-post": DECODER | {"positions": "rotary", "norm_order": "post", "query_key_norm": True},
    "gelu-gate": DECODER | {"activation": "gelu_tanh", "gated_feed_forward": True, "head_dim": 5},
    "t5": T5,
    "umt5": T5 | {"relative_bias": "per_layer", "tied_embeddings": False, "scale_projection": False},
    "marian": MARIAN,
    "m2m100": MARIAN | {"norm_order": "pre", "sinusoids": "tensor2tensor", "position_offset": 2, "final_bias": False},
    "bart": MARIAN
    | {"positions": "learned", "sinusoids": "interleaved", "embedding_norm": True, "source_embedding": "own_positions"},
    "two-vocabularies": MARIAN | {"source_embedding": "own", "source_vocab_size": 29},
    "windows": DECODER | {"attention_window": 3, "windowed_layers": (1,), "relative_bias": "shared"},
    "encoder-decoder": LLAMA | {"architecture": "encoder_decoder", "num_encoder_layers": 1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_option_survives_the_export(tmp_path: Path, options: dict[str, Any]) -> None:
    model, precision = exported(tmp_path, make_model, **options)
    report = check_parity(model, tmp_path, "fp32", precision, 16)
    assert report.largest_difference is not None
    assert report.largest_difference < 1e-4
    assert report.token_agreement == report.sentence_agreement == 1.0


@pytest.mark.parametrize("name", ["llama", "head-norm", "gelu-gate", "t5", "two-vocabularies"])
def test_int8_stays_near(tmp_path: Path, name: str) -> None:
    model, precision = exported(tmp_path, make_model, "int8", **OPTIONS[name])
    report = check_parity(model, tmp_path, "int8", precision, 16)
    assert report.relative_error is not None
    assert 0 < report.relative_error < 0.2  # sixteen channels average little of the rounding out


@pytest.mark.parametrize("name", ["llama", "bias-tied", "head-norm", "gpt2"])
def test_int4_computes_with_rounded_weights_and_inputs_and_stays_near(tmp_path: Path, name: str) -> None:
    model, precision = exported(tmp_path, make_model, "int4", **OPTIONS[name])
    rounded = check_parity(rounded_decoder(model), tmp_path, "int4", precision, 16)
    assert rounded.relative_error is not None
    assert rounded.relative_error < 1e-3  # a number between two steps may fall to either
    assert rounded.token_agreement == rounded.sentence_agreement == 1.0
    report = check_parity(model, tmp_path, "int4", precision, 16)
    assert report.relative_error is not None
    assert 0.01 < report.relative_error < 0.3  # sixteen channels average little of the rounding out


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_graph_is_of_standard_operators_without_shuffling(dtype: Any) -> None:
    ((_, graph),) = traced(make_model, dtype, **LLAMA)
    nodes = [node for node in graph.graph if node.domain == ""]
    kinds = Counter(node.op_type for node in nodes)
    layers = LLAMA["num_decoder_layers"]
    assert kinds["RMSNormalization"] == 2 * layers + 1
    assert kinds["RotaryEmbedding"] == kinds["TensorScatter"] == 2 * layers
    assert kinds["Attention"] == kinds["Split"] == layers
    assert not {"Transpose", "Slice", "Expand", "Sqrt", "ReduceMean", "If", "Loop"} & set(kinds)
    assert kinds["Cast"] <= 1  # float16 logits become float32
    heads = {
        tuple(node.attributes[key].as_int() for key in ("q_num_heads", "kv_num_heads"))
        for node in nodes
        if node.op_type == "Attention"
    }
    assert heads == {(4, 2)}


def test_norms_of_heads_ask_for_each_shape_once() -> None:
    ((_, graph),) = traced(make_model, **OPTIONS["head-norm"])
    kinds = Counter(node.op_type for node in graph.graph)
    layers = LLAMA["num_decoder_layers"]
    assert kinds["RMSNormalization"] == 4 * layers + 1
    assert kinds["Reshape"] == 4 * layers + 1  # and one that counts tokens through all rows
    assert kinds["Concat"] == 4  # one a shape, whatever the layers
