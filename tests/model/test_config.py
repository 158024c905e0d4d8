import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from model.config import ConfigError, ModelConfig
from model.rotary import RotaryScaling
from tests.model.samples import make_config

LINEAR = RotaryScaling("linear", factor=2.0)
SCALING_FIELDS = ", ".join(field.name for field in dataclasses.fields(RotaryScaling))
ROOT = Path(__file__).resolve().parents[2]


def test_json_round_trip_keeps_every_field(tmp_path: Path) -> None:
    config = make_config(positions="learned", norm_order="post", activation="gelu", dropout=0.25, final_bias=False)
    scaled = make_config(positions="rotary", rotary_scaling=LINEAR, norm="rms", num_kv_heads=1, head_dim=6)
    for kept in (config, scaled):
        kept.save(tmp_path / "config.json")
        assert ModelConfig.load(tmp_path / "config.json") == kept
        assert ModelConfig.from_dict(kept.to_dict()) == kept


def test_a_file_from_before_a_field_gets_its_default() -> None:
    """The first release knew no more than these; what it saved means the same today."""
    values = {"architecture": "decoder", "vocab_size": 24, "d_model": 16, "num_heads": 2, "num_decoder_layers": 1}
    config = ModelConfig.from_dict(values)
    assert (config.head_size, config.cache_width, config.norm) == (8, 16, "layer")
    assert config.query_key_value_bias
    assert not config.gated_feed_forward


def test_width_of_the_cache_follows_the_heads_of_keys_and_values() -> None:
    assert make_config(num_heads=4, num_kv_heads=2).cache_width == 8
    wide = make_config(num_heads=3, head_dim=10)
    assert (wide.head_size, wide.cache_width) == (10, 30)


def test_whole_numbers_do_for_fractions() -> None:
    assert make_config(dropout=0).dropout == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "rnn"}, "architecture is 'rnn', allowed: encoder_decoder, encoder, decoder"),
        ({"positions": "alibi"}, "positions is 'alibi', allowed: none, sinusoidal, learned, rotary"),
        ({"norm_order": None}, "norm_order is None, allowed: pre, post"),
        ({"activation": "tanh"}, "activation is 'tanh', allowed: relu, gelu, gelu_tanh, silu"),
        ({"vocab_size": "8000"}, "vocab_size is '8000', it must be a whole number"),
        ({"d_ff": 2.0}, "d_ff is 2.0, it must be a whole number"),
        ({"num_heads": True}, "num_heads is True, it must be a whole number"),
        ({"num_heads": 0}, "num_heads is 0, it must be at least 1"),
        ({"num_heads": 3}, "d_model 16 is not a multiple of num_heads 3"),
        ({"d_model": 15, "num_heads": 3}, "d_model 15 is odd; sinusoidal positions need an even one"),
        ({"num_kv_heads": -1}, "num_kv_heads is -1, it must be at least 0"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_heads 4 is not a multiple of num_kv_heads 3"),
        ({"head_dim": -8}, "head_dim is -8, it must be at least 0"),
        ({"norm": "batch"}, "norm is 'batch', allowed: layer, rms"),
        (
            {"positions": "rotary", "head_dim": 5},
            "the head size 5 is odd; rotary positions need an even one",
        ),
        ({"positions": "rotary", "rotary_base": 1}, "rotary_base is 1, it must be above 1"),
        ({"rotary_scaling": None}, f"rotary_scaling is None, it must be an object with any of {SCALING_FIELDS}"),
        ({"rotary_scaling": LINEAR}, "rotary_scaling is given, but positions is 'sinusoidal'"),
        (
            {"positions": "rotary", "rotary_scaling": RotaryScaling("ntk")},  # type: ignore[arg-type]
            "rotary_scaling.kind is 'ntk', allowed: none, linear, llama3, yarn",
        ),
        (
            {"positions": "rotary", "rotary_scaling": RotaryScaling("linear", factor="2")},  # type: ignore[arg-type]
            "rotary_scaling.factor is '2', it must be a number",
        ),
        (
            {"positions": "rotary", "rotary_scaling": RotaryScaling("linear", factor=0.5, attention_factor=0)},
            (
                "rotary_scaling.factor is 0.5, it must be at least 1; "
                "rotary_scaling.attention_factor is 0, it must be positive"
            ),
        ),
        (
            {"positions": "rotary", "rotary_scaling": RotaryScaling("yarn", factor=2, slow_turns=4)},
            (
                "rotary_scaling.slow_turns is 4 and fast_turns 4.0, allowed: 0 < slow_turns < fast_turns; "
                "rotary_scaling.original_max_seq_len is 0, it must be at least 1 for 'yarn'"
            ),
        ),
        ({"dropout": 1.0}, "dropout is 1.0, allowed: 0 <= dropout < 1"),
        ({"dropout": "no"}, "dropout is 'no', it must be a number"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0, it must be positive"),
        ({"norm_eps": float("nan")}, "norm_eps is nan, it must be positive"),
        ({"tied_embeddings": "yes"}, "tied_embeddings is 'yes', it must be true or false"),
        ({"num_token_types": -1}, "num_token_types is -1, it must be at least 0"),
        ({"num_token_types": 2}, "num_token_types is 2, it must be 0 for 'encoder_decoder'"),
        ({"eos_id": 24}, "eos_id is 24, allowed: 0 to vocab_size - 1"),
        ({"pad_id": -1}, "pad_id is -1, allowed: 0 to vocab_size - 1"),
        (
            {"num_encoder_layers": 0},
            "num_encoder_layers is 0, it must be at least 1 for architecture 'encoder_decoder'",
        ),
        (
            {"architecture": "decoder", "num_encoder_layers": 2},
            "num_encoder_layers is 2, it must be 0 for architecture 'decoder'",
        ),
        (
            {"architecture": "encoder", "num_decoder_layers": 1},
            "num_decoder_layers is 1, it must be 0 for architecture 'encoder'",
        ),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(**changes)
    assert str(caught.value) == message


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"d_ff is 0.*dropout is 2"):
        make_config(d_ff=0, dropout=2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"architecture": "encoder"', "is not JSON"),
        ("[1]", "holds list, it must hold an object"),
        ('{"architecture": "encoder", "width": 3}', "unknown fields: width; known: architecture"),
        (
            '{"architecture": "encoder", "vocab_size": 9, "rotary_scaling": {"kind": "linear", "by": 2}}',
            "unknown fields of rotary_scaling: by; known: kind, factor",
        ),
        ('{"d_model": 4}', "missing fields: architecture, vocab_size"),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        ModelConfig.load(path)


def test_configuration_and_tokenizer_are_free_of_torch() -> None:
    program = "import sys, model.config, model.tokenizer; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
