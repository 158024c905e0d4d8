"""Rotary frequencies are those of the papers, as `transformers` computes them too."""

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from model.positions import RotaryTable
from model.rotary import NO_SCALING, RotaryScaling, frequencies
from tests.model.samples import make_config

LLAMA3 = RotaryScaling("llama3", factor=8.0, original_max_seq_len=256, slow_turns=1.0, fast_turns=4.0)
YARN = RotaryScaling("yarn", 4.0, original_max_seq_len=128, slow_turns=1.0, fast_turns=32.0)
# With a small base even the last pair turns often within it, so that the way from one to the other is cut at the end.
LONG_YARN = RotaryScaling("yarn", 4.0, original_max_seq_len=2048, slow_turns=1.0, fast_turns=32.0)


def theirs(head_size: int, base: float, **parameters: Any) -> tuple[list[float], float]:
    config = LlamaConfig(
        hidden_size=2 * head_size,
        num_attention_heads=2,
        max_position_embeddings=1024,
        rope_parameters={"rope_theta": base, **parameters},
    )
    values, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"))
    return values.tolist(), factor


def test_plain_frequencies_fall_from_one_to_nearly_one_over_the_base() -> None:
    assert frequencies(8, 10_000.0, NO_SCALING) == pytest.approx([1.0, 0.1, 0.01, 0.001])


@pytest.mark.parametrize("head_size", [8, 64, 128])
@pytest.mark.parametrize("base", [16.0, 10_000.0, 500_000.0])
@pytest.mark.parametrize(
    ("scaling", "parameters"),
    [
        (RotaryScaling("linear", factor=4.0), {"rope_type": "linear", "factor": 4.0}),
        (
            LLAMA3,
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            },
        ),
        (YARN, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}),
        (LONG_YARN, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}),
    ],
    ids=["linear", "llama3", "yarn", "long yarn"],
)
def test_scaled_frequencies_equal_those_of_transformers(
    head_size: int, base: float, scaling: RotaryScaling, parameters: dict[str, Any]
) -> None:
    wanted, factor = theirs(head_size, base, **parameters)
    assert frequencies(head_size, base, scaling) == pytest.approx(wanted, rel=1e-5)
    assert factor == pytest.approx(0.1 * math.log(4.0) + 1 if scaling.kind == "yarn" else 1.0)


@pytest.mark.parametrize("scaling", [LLAMA3, YARN], ids=["llama3", "yarn"])
def test_fast_pairs_are_left_alone_and_slow_ones_divided_in_full(scaling: RotaryScaling) -> None:
    plain, scaled = frequencies(128, 10_000.0, NO_SCALING), frequencies(128, 10_000.0, scaling)
    assert scaled[0] == plain[0]
    assert scaled[-1] == pytest.approx(plain[-1] / scaling.factor)
    shares = [after / before for before, after in zip(plain, scaled, strict=True)]
    assert shares == sorted(shares, reverse=True)


def test_table_holds_the_angles_of_every_position() -> None:
    scaling = RotaryScaling("linear", factor=2.0, attention_factor=1.5)
    table = RotaryTable(make_config(positions="rotary", head_dim=4, rotary_scaling=scaling, max_seq_len=5000))
    assert table.cosines.shape == (5000, 2)
    assert table.cosines[4999].tolist() == pytest.approx([1.5 * math.cos(2499.5), 1.5 * math.cos(24.995)], abs=1e-6)
    assert table.sines[4999].tolist() == pytest.approx([1.5 * math.sin(2499.5), 1.5 * math.sin(24.995)], abs=1e-6)
