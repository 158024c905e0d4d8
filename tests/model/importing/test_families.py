"""Parity with transformers, over the options of each family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from model.importing.convert import import_checkpoint
from tests.model.importing.folders import VOCAB_SIZE, make_theirs, write_folder

CASES: list[tuple[str, dict[str, Any]]] = [
    ("bert", {}),
    ("bert", {"head": "ForMaskedLM"}),
    ("bert", {"head": "ForPreTraining"}),
    ("bert", {"num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40}),
    ("bert", {"num_hidden_layers": 3, "num_attention_heads": 1, "hidden_size": 12}),
    ("bert", {"hidden_act": "relu"}),
    ("bert", {"hidden_act": "gelu_new"}),
    ("bert", {"hidden_act": "silu"}),
    ("bert", {"type_vocab_size": 1}),
    ("bert", {"type_vocab_size": 5}),
    ("bert", {"max_position_embeddings": 17}),
    ("bert", {"layer_norm_eps": 0.1}),
    ("bert", {"pad_token_id": None}),
    ("distilbert", {}),
    ("distilbert", {"head": "ForMaskedLM"}),
    ("distilbert", {"n_layers": 3, "n_heads": 4, "activation": "relu", "max_position_embeddings": 19}),
    ("distilbert", {"sinusoidal_pos_embds": True}),
    ("roberta", {}),
    ("roberta", {"head": "ForMaskedLM", "type_vocab_size": 1}),
    ("roberta", {"pad_token_id": 3, "max_position_embeddings": 21, "layer_norm_eps": 1e-5}),
    ("xlm-roberta", {"type_vocab_size": 1, "hidden_act": "gelu_pytorch_tanh"}),
    ("xlm-roberta", {"head": "ForMaskedLM"}),
    ("camembert", {"num_hidden_layers": 1, "type_vocab_size": 1}),
]


def rows(model: PreTrainedModel, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Random ids without padding in them, padded on the right, and the lengths."""
    pad_id = model.config.pad_token_id or 0
    generator = torch.Generator().manual_seed(7)
    ids = torch.full((len(lengths), max(lengths)), pad_id)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(5, VOCAB_SIZE, (length,), generator=generator)
    return ids, torch.tensor(lengths)


@torch.inference_mode()
def largest_difference(theirs: PreTrainedModel, ours: Checkpoint) -> float:
    """Of the hidden states of all real tokens, in rows from one token to all positions; token types are random."""
    ids, lengths = rows(theirs, [ours.config.max_seq_len, 1, 5, 2])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    types = None
    if (kinds := ours.config.num_token_types) > 1:
        types = torch.randint(0, kinds, ids.shape, generator=torch.Generator().manual_seed(8))
        inputs["token_type_ids"] = types
    expected = theirs.base_model(**inputs).last_hidden_state
    found = ours.model.encode(ids, lengths, types)
    assert expected[mask].abs().mean() > 0.1
    return float((found - expected)[mask].abs().max())


@pytest.mark.parametrize(("model_type", "options"), CASES, ids=str)
def test_hidden_states_are_those_of_transformers(model_type: str, options: dict[str, Any], tmp_path: Path) -> None:
    theirs = make_theirs(model_type, **options)
    imported = import_checkpoint(write_folder(tmp_path / "theirs", theirs))
    save_checkpoint(imported, tmp_path / "ours")
    ours = load_checkpoint(tmp_path / "ours")
    assert largest_difference(theirs, ours) <= 1e-5
    offset = theirs.config.pad_token_id + 1 if "roberta" in model_type or model_type == "camembert" else 0
    assert ours.config.max_seq_len == theirs.config.max_position_embeddings - offset
    assert ours.metadata["task"] == "embed"
    assert ours.metadata["source"]["model_type"] == model_type


def test_token_types_count_where_there_are_some(tmp_path: Path) -> None:
    theirs = make_theirs("bert")
    ours = import_checkpoint(write_folder(tmp_path / "theirs", theirs))
    ids, lengths = rows(theirs, [6])
    first, second = (ours.model.encode(ids, lengths, torch.full_like(ids, kind)) for kind in (0, 1))
    assert torch.equal(first, ours.model.encode(ids, lengths))
    assert not torch.allclose(first, second, atol=1e-2)


@pytest.mark.parametrize(
    ("theirs_dtype", "stored"),
    [(torch.float16, torch.float16), (torch.bfloat16, torch.float16), (torch.float32, torch.float32)],
)
def test_weights_keep_their_type_where_it_can_be_stored(
    theirs_dtype: torch.dtype, stored: torch.dtype, tmp_path: Path
) -> None:
    theirs = torch.nn.Module.to(make_theirs("bert"), theirs_dtype)
    ours = import_checkpoint(write_folder(tmp_path / "theirs", theirs))
    assert ours.dtype == stored
    assert {parameter.dtype for parameter in ours.model.parameters()} == {torch.float32}
    assert largest_difference(torch.nn.Module.float(theirs), ours) <= 1e-5


def test_the_ends_are_those_that_the_tokenizer_adds(folder: Path) -> None:
    ours = import_checkpoint(folder)
    assert (ours.config.pad_id, ours.config.bos_id, ours.config.eos_id) == (0, 2, 3)
    assert ours.tokenizer.encodings(["The dog."])[0].tokens == ["[CLS]", "the", "dog", ".", "[SEP]"]
