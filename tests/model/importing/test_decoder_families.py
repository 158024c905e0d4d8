"""Decoders of others: logits and greedy continuations are those of transformers, over the options of each family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.checkpoint import load_checkpoint, save_checkpoint
from model.importing.convert import import_checkpoint
from model.importing.options import ModelImportError
from model.tokenizer import Tokenizer
from tests.model.importing.decoders import (
    VOCAB_SIZE,
    greedy_ours,
    greedy_theirs,
    make_byte_level_tokenizer,
    make_decoder,
    write_decoder,
)
from tests.model.importing.folders import change_json, change_weights

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 24}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {}),
    ("gpt2", {"n_inner": 20, "activation_function": "relu", "layer_norm_epsilon": 0.1}),
    ("gpt2", {"tie_word_embeddings": False}),
    ("llama", {}),
    ("llama", {"num_key_value_heads": 4, "rms_norm_eps": 0.1, "hidden_act": "gelu_pytorch_tanh"}),
    ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 6}),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
    ("llama", {"rope_parameters": LLAMA3}),
    ("llama", {"rope_parameters": YARN}),
    ("llama", {"rope_parameters": YARN | {"attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0}}),
    ("llama", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 96, "max_window_layers": 0}),
    ("qwen3", {}),
    ("qwen3", {"attention_bias": True, "tie_word_embeddings": True, "head_dim": 6}),
    ("mistral", {}),
    ("mistral", {"sliding_window": 96}),
    ("mistral", {"sliding_window": 80, "head_dim": 6}),
]
PROMPT = [17, 200, 45, 45, 3, 120, 99]


@pytest.mark.parametrize(("model_type", "options"), CASES, ids=str)
def test_logits_and_continuations_are_those_of_transformers(
    model_type: str, options: dict[str, Any], tmp_path: Path
) -> None:
    theirs = make_decoder(model_type, **options)
    save_checkpoint(import_checkpoint(write_decoder(tmp_path / "theirs", theirs)), tmp_path / "ours")
    ours = load_checkpoint(tmp_path / "ours")
    limit = ours.config.max_seq_len
    assert limit == min(96, options.get("sliding_window", 96))
    ids = torch.randint(0, VOCAB_SIZE, (2, limit), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        expected, found = theirs(input_ids=ids).logits, ours.model.project(ours.model(ids))
    assert expected.std() > 0.5
    assert float((found - expected).abs().max()) <= 1e-4
    continuation = greedy_ours(ours.model, PROMPT, 64)
    assert continuation == greedy_theirs(theirs, PROMPT, 64)
    assert len(set(continuation)) > 4
    assert ours.metadata["task"] == "generate"
    assert ours.metadata["generation"]["eos_token_ids"] == [0]


@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_positions_of_files_from_before_version_5_are_read_alike(model_type: str, tmp_path: Path) -> None:
    scaling = LLAMA3 | {"rope_theta": 3000.0}
    theirs = make_decoder(model_type, rope_parameters=scaling)
    folder = write_decoder(tmp_path / "theirs", theirs)
    wanted = import_checkpoint(folder).config
    old = {name: value for name, value in scaling.items() if name != "rope_theta"}
    change_json(folder / "config.json", rope_parameters=None, rope_theta=3000.0, rope_scaling=old)
    assert import_checkpoint(folder).config == wanted
    oldest = {"type": "linear", "factor": 2.0}
    change_json(folder / "config.json", rope_scaling=oldest)
    assert import_checkpoint(folder).config.rotary_scaling.kind == "linear"


@pytest.mark.parametrize(
    ("model_type", "options", "note"),
    [
        ("mistral", {"sliding_window": 40}, "texts may have 40 tokens, not 96"),
        (
            "qwen3",
            {"use_sliding_window": True, "sliding_window": 30, "max_window_layers": 1},
            "texts may have 30 tokens, not 96",
        ),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic scaling"),
    ],
)
def test_what_bounds_the_length_is_told(model_type: str, options: dict[str, Any], note: str, tmp_path: Path) -> None:
    notes: list[str] = []
    folder = write_decoder(tmp_path / "theirs", make_decoder(model_type, **options))
    ours = import_checkpoint(folder, report=notes.append)
    assert ours.config.max_seq_len == options.get("sliding_window", 96)
    assert [line for line in notes if note in line]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}},
            "rope_parameters.rope_type is 'longrope', allowed: default, linear, dynamic, llama3, yarn",
        ),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor is missing, it must be a number"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"hidden_act": "xielu"}, "hidden_act is 'xielu', allowed: relu, gelu"),
        ({"eos_token_id": "2"}, "eos_token_id is '2', it must be a token id, or a list of them"),
        ({"num_key_value_heads": 3}, "num_heads 4 is not a multiple of num_kv_heads 3"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "theirs", make_decoder("llama"))
    change_json(folder / "config.json", **changes)
    with pytest.raises(ModelImportError) as caught:
        import_checkpoint(folder)
    assert message in str(caught.value)


def test_pooling_is_not_for_a_decoder(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "theirs", make_decoder("gpt2"))
    with pytest.raises(ModelImportError, match="pooling is for models that embed, a gpt2 generates"):
        import_checkpoint(folder, pooling="mean")


def test_bfloat16_in_shards_is_stored_as_float16_where_it_fits(tmp_path: Path) -> None:
    theirs = torch.nn.Module.to(make_decoder("llama"), torch.bfloat16)
    folder = write_decoder(tmp_path / "theirs", theirs, max_shard_size="10KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    notes: list[str] = []
    save_checkpoint(import_checkpoint(folder, report=notes.append), tmp_path / "ours")
    ours = load_checkpoint(tmp_path / "ours")
    assert ours.dtype == torch.float16
    assert notes == ["weights in bfloat16 are stored as float16"]
    table = dict(theirs.named_parameters())["model.embed_tokens.weight"]
    assert torch.equal(ours.model.embedding.token.weight, table.float())  # no digit is lost, for these are not tiny


def test_bfloat16_beyond_float16_is_stored_as_float32(tmp_path: Path) -> None:
    theirs = torch.nn.Module.to(make_decoder("qwen2"), torch.bfloat16)
    with torch.no_grad():
        dict(theirs.named_parameters())["model.layers.0.self_attn.q_proj.bias"][3] = 70_000.0
    notes: list[str] = []
    ours = import_checkpoint(write_decoder(tmp_path / "theirs", theirs), report=notes.append)
    assert ours.dtype == torch.float32
    assert notes == ["a weight is as large as 7.01e+04, which float16 cannot hold: stored as float32"]


def test_a_tied_head_in_the_file_and_tables_of_angles_are_told_as_left_out(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "theirs", make_decoder("llama", tie_word_embeddings=True))
    head, angles = "lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"
    extra = {head: torch.zeros(VOCAB_SIZE, 16), angles: torch.ones(2)}
    change_weights(folder, lambda weights: weights | extra)
    notes: list[str] = []
    import_checkpoint(folder, report=notes.append)
    assert sorted(notes) == [
        "left out lm_head.weight: config.json ties it to the embedding",
        "left out model.layers.0.self_attn.rotary_emb.inv_freq: they follow from the configuration",
    ]


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=40))
def test_byte_level_tokens_give_every_text_back(text: str) -> None:
    tokenizer = Tokenizer(make_byte_level_tokenizer())
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text
