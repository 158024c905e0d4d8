"""The attention graph computes PyTorch's own maps, on weights that it does not own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.attention import attention_definition
from export.bundle import load_bundle
from export.convert import ExportOptions, export_bundle
from model.checkpoint import Checkpoint
from model.tokenizer import Tokenizer
from service.engine.encode.attention import AttentionRequest
from service.runtime.attention import OnnxAttentionBackend
from tests.export.models import make_model
from tests.export.test_convert import external_places, graphs_of

EMBEDDING = {"pooling": "mean", "max_input_tokens": 32}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "encoder": (
        {"architecture": "encoder", "num_decoder_layers": 0, "embedding_norm": True, "num_token_types": 2},
        {"task": "embed", "embedding": EMBEDDING},
    ),
    "decoder": (
        {"architecture": "decoder", "num_encoder_layers": 0, "positions": "rotary", "num_kv_heads": 1},
        {"task": "generate"},
    ),
}


def exported(tokenizer: Tokenizer, folder: Path, case: str) -> tuple[Checkpoint, Path]:
    options, metadata = CASES[case]
    checkpoint = Checkpoint(make_model(vocab_size=tokenizer.vocab_size, **options), tokenizer, metadata)
    export_bundle(checkpoint, folder / case, ExportOptions(precisions=("fp32",), attention=True))
    return checkpoint, folder / case


@pytest.mark.parametrize("case", ["encoder_decoder", *CASES])
def test_maps_are_those_of_pytorch(
    tokenizer: Tokenizer, with_attention: tuple[Checkpoint, Path], tmp_path: Path, case: str
) -> None:
    checkpoint, folder = exported(tokenizer, tmp_path, case) if case in CASES else with_attention
    backend = OnnxAttentionBackend(load_bundle(folder))
    definition = attention_definition(checkpoint.model)
    for source, target in (((4, 9, 7), (1, 12)), ((5,), (1,)), (tuple(range(20)), tuple(range(17)))):
        request = AttentionRequest(
            source_ids=source if backend.reads_source else None,
            target_ids=target if backend.reads_target else None,
            wants_norms=True,
        )
        maps, norms = backend.maps(request)
        assert norms is not None
        tensors = {
            "input_ids": torch.tensor([source]),
            "lengths": torch.tensor([len(source)]),
            "token_type_ids": torch.zeros((1, len(source)), dtype=torch.long),
            "target_ids": torch.tensor([target]),
        }
        with torch.inference_mode():
            results = definition.module.eval()(*(tensors[spec.name] for spec in definition.inputs))
        expected = {spec.name: tensor[0].numpy() for spec, tensor in zip(definition.outputs, results, strict=True)}
        assert {f"{kind}_attentions.{layer}" for kind in maps for layer in maps[kind]} == {
            name for name in expected if "_attentions." in name
        }
        for kind, layers in maps.items():
            for layer, found in layers.items():
                weights = expected[f"{kind}_attentions.{layer}"]
                np.testing.assert_allclose(found, weights, atol=1e-5)
                np.testing.assert_allclose(found.sum(-1), np.ones(found.shape[:2]), atol=1e-5)
                lengths = expected[f"{kind}_value_norms.{layer}"]
                np.testing.assert_allclose(norms[kind][layer], weights * lengths[:, None], atol=1e-5)


def test_only_the_layers_wanted_come(with_attention: tuple[Checkpoint, Path]) -> None:
    backend = OnnxAttentionBackend(load_bundle(with_attention[1]))
    maps, norms = backend.maps(AttentionRequest(source_ids=(4, 5), target_ids=(1, 6, 7), layers=(1,)))
    assert norms is None
    assert {kind: list(layers) for kind, layers in maps.items()} == {"encoder": [1]}


def test_the_graph_brings_no_weights_of_its_own(with_attention: tuple[Checkpoint, Path], bundle_folder: Path) -> None:
    _, folder = with_attention
    graphs = graphs_of(folder)
    shared = external_places(graphs.pop("attention.onnx"))
    plain = {place for graph in graphs.values() for place in external_places(graph).values()}
    assert len(shared) > 20
    assert set(shared.values()) <= plain
    assert max(offset + length for offset, length in plain) == (folder / "weights.bin").stat().st_size
    assert load_bundle(bundle_folder).manifest.attention is None
