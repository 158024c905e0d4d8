"""What today's decoders need: rotary positions, RMSNorm, gates, shared heads. Each with and without a cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from model.decoding import pad
from model.rotary import RotaryScaling
from tests.model.samples import make_config, make_model, random_rows
from tests.model.test_transformer import ARCHITECTURES, Cached, full_logits

LLAMA: dict[str, Any] = {
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
}
OPTIONS: list[dict[str, Any]] = [
    LLAMA,
    LLAMA | {"query_key_value_bias": True, "tied_embeddings": False},
    LLAMA | {"query_key_norm": True, "head_dim": 6, "num_kv_heads": 1},
    LLAMA | {"rotary_scaling": RotaryScaling("linear", factor=2.0, attention_factor=1.2), "num_kv_heads": 4},
    {"positions": "rotary", "query_key_norm": True, "norm_order": "post"},
    {"positions": "learned", "activation": "gelu_tanh", "gated_feed_forward": True, "head_dim": 5, "norm": "rms"},
    {"num_kv_heads": 1, "attention_output_bias": False, "feed_forward_bias": False},
]
IDS = ["llama", "bias-untied", "head-norm", "scaled", "post-rotary", "gelu-gate", "multi-query"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@torch.inference_mode()
def test_rows_at_different_places_equal_rows_without_a_cache(architecture: str, options: dict[str, Any]) -> None:
    model = make_model(architecture=architecture, **options)
    sources = random_rows([2, 8, 5], seed=1) if architecture == "encoder_decoder" else None
    targets = random_rows([6, 9, 4], seed=2)
    cached = Cached(model, 3, sources)
    assert cached.cache[0].key.shape == (3, 16, model.config.cache_width)
    parts = [cached.advance([targets[0][:3], targets[1][:5], targets[2][:1]])]
    parts.append(cached.advance([targets[0][3:4], targets[1][5:8], targets[2][1:3]]))
    parts.append(cached.advance([targets[0][4:], targets[1][8:], targets[2][3:]]))
    for row, wanted in enumerate(full_logits(model, targets, sources)):
        torch.testing.assert_close(torch.cat([part[row] for part in parts]), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
def test_every_weight_is_trained(options: dict[str, Any]) -> None:
    model = make_model(**options).train()
    sources, targets = random_rows([6, 4], seed=1), random_rows([5, 5], seed=2)
    logits = model.project(model(pad(targets, 0), pad(sources, 0), torch.tensor([6, 4])))
    logits.log_softmax(-1)[..., 7].sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []
    biases = {name.rsplit(".", 2)[-2] for name, _ in model.named_parameters() if name.endswith(".bias")}
    config = model.config
    projections = {"query_key_value", "key_value", "query"}
    assert projections & biases == (projections if config.query_key_value_bias else set())
    assert ("output" in biases) == config.attention_output_bias
    assert ("expand" in biases) == ("contract" in biases) == config.feed_forward_bias
    assert ("norm" in biases) == (config.norm == "layer")


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
def test_training_in_bfloat16_stays_near_float32(options: dict[str, Any]) -> None:
    model = make_model(architecture="decoder", **options)
    ids = pad(random_rows([7, 7]), 0)
    wanted = model.project(model(ids))
    with torch.autocast("cpu", torch.bfloat16):
        found = model.project(model(ids))
    found.float().sum().backward()
    error = (found.float() - wanted).detach().square().mean().sqrt() / wanted.detach().std()
    assert 0 < float(error) < 0.1


@torch.inference_mode()
def test_rotary_positions_tell_distance_alone() -> None:
    """The same tokens further on give the same states; positions that are added do not."""
    ids = torch.tensor([random_rows([5])[0]])
    for positions, is_relative in (("rotary", True), ("learned", False)):
        model = make_model(architecture="decoder", positions=positions)
        first, _ = model.decode(ids, torch.tensor([0]), model.empty_cache(1, 5))
        states, places = model.enter_decoder(ids, torch.arange(5)[None] + 9)
        for layer, place in zip(model.decoder_layers, places, strict=True):
            states = layer(states, place, None, None)
        assert torch.allclose(model.decoder_norm(states), first, atol=1e-4) == is_relative


def test_tables_of_angles_are_in_no_checkpoint() -> None:
    assert not [name for name in make_model(**LLAMA).state_dict() if "rotary" in name or "position" in name]


def test_a_configuration_of_a_file_gives_the_same_model() -> None:
    config = make_config(**OPTIONS[3])
    assert type(config).from_dict(config.to_dict()).rotary_scaling.factor == 2.0
