import math

import pytest
import torch
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from model.config import ConfigError
from model.positions import AttentionBias, distance_buckets, sinusoids
from tests.model.samples import make_config


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 12), (16, 20), (64, 1000)])
def test_buckets_are_those_of_t5(num_buckets: int, max_distance: int, is_causal: bool) -> None:
    distances = torch.arange(-2 * max_distance, 2 * max_distance + 1)
    wanted = T5Attention._relative_position_bucket(distances, not is_causal, num_buckets, max_distance)  # type: ignore[no-untyped-call]
    places = distances.clamp(-max_distance, max_distance) + max_distance
    assert torch.equal(distance_buckets(num_buckets, max_distance, is_causal)[places], wanted)


def test_sinusoids_in_halves_are_those_of_marian() -> None:
    theirs = MarianSinusoidalPositionalEmbedding(40, 12)
    wanted = theirs.create_weight()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(sinusoids(40, 12, "halves"), wanted, atol=2e-6, rtol=0)


def test_sinusoids_of_m2m100_count_from_behind_the_padding() -> None:
    wanted = M2M100SinusoidalPositionalEmbedding.get_embedding(42, 12, padding_idx=1)
    torch.testing.assert_close(sinusoids(40, 12, "tensor2tensor", first=2), wanted[2:], atol=2e-6, rtol=0)
    assert math.isclose(sinusoids(2, 12, "tensor2tensor")[1, 5], math.sin(1e-4), rel_tol=1e-4)


def test_a_shared_bias_is_one_tensor_and_a_window_is_added_to_its_layer_alone() -> None:
    config = make_config(relative_bias="shared", attention_window=1, windowed_layers=(1,), num_encoder_layers=3)
    bias = AttentionBias(config, 3, is_causal=False)
    torch.nn.init.normal_(bias.tables[0].weight)  # type: ignore[arg-type]
    first, second, third = bias(torch.arange(4)[None], 4, torch.float32)
    assert first is third
    assert first is not None
    assert second is not None
    near = (torch.arange(4)[:, None] - torch.arange(4)).abs() <= 1
    assert torch.equal(second[0, 0][near], first[0, 0][near])
    assert second[0, 0][~near].lt(-60000).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sinusoids": "halves", "positions": "learned"}, "sinusoids or position_offset is given"),
        ({"position_offset": -1}, "position_offset is -1, it must be at least 0"),
        ({"relative_bias": "shared", "relative_buckets": 7}, "relative_buckets is 7, it must be even and at least 4"),
        ({"relative_bias": "shared", "relative_max_distance": 16}, "relative_max_distance is 16, allowed: above"),
        ({"attention_scale": -1.0}, "attention_scale is -1.0, it must be positive"),
        ({"attention_window": 2}, "attention_window is 2, but windowed_layers has 0: give both or neither"),
        ({"attention_window": 2, "windowed_layers": (5,)}, "windowed_layers has 5, allowed: 0 to 1"),
        ({"source_embedding": "own", "architecture": "decoder"}, "source_embedding is 'own', it must be 'shared'"),
        ({"source_vocab_size": 9}, "source_vocab_size is given, but source_embedding is 'shared'"),
    ],
)
def test_what_does_not_fit_together_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(**changes)
