"""Encoder-decoders: parity with transformers over the options of each family."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from model.importing.convert import import_checkpoint
from model.importing.options import ModelImportError
from tests.model.importing.folders import change_json
from tests.model.importing.seq2seq import write_bart, write_m2m100, write_marian, write_mbart, write_t5

Write = Callable[..., PreTrainedModel]
CASES: dict[str, tuple[Write, dict[str, Any]]] = {
    "marian": (write_marian, {"activation_function": "swish"}),
    "marian-relu": (write_marian, {"activation_function": "relu", "scale_embedding": False, "decoder_layers": 1}),
    "marian-two-vocabularies": (write_marian, {"own_vocabularies": True, "activation_function": "swish"}),
    "marian-own-head": (write_marian, {"own_head": True}),
    "m2m100": (write_m2m100, {}),
    "m2m100-own-head": (write_m2m100, {"own_head": True, "activation_function": "gelu", "scale_embedding": False}),
    "nllb": (write_m2m100, {"nllb": True}),
    "mbart-25": (write_mbart, {"scale_embedding": True}),
    "mbart-50": (write_mbart, {"languages": 52, "activation_function": "relu"}),
    "bart": (write_bart, {}),
    "bart-own-head": (write_bart, {"own_head": True, "scale_embedding": True, "encoder_layers": 1}),
    "t5": (write_t5, {}),
    "flan-t5": (write_t5, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "own_head": True}),
    "t5-scaled-own-head": (write_t5, {"own_head": True, "num_decoder_layers": 1}),
    "t5-far": (write_t5, {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "d_kv": 8}),
    "mt5": (write_t5, {"model_type": "mt5", "own_head": True}),
    "mt5-tied": (write_t5, {"model_type": "mt5", "feed_forward_proj": "relu"}),
    "umt5": (write_t5, {"model_type": "umt5"}),
    "umt5-own-head": (write_t5, {"model_type": "umt5", "own_head": True, "num_layers": 3}),
}


def imported(folder: Path) -> Checkpoint:
    """Through a file, as it is used."""
    save_checkpoint(import_checkpoint(folder / "theirs"), folder / "ours")
    return load_checkpoint(folder / "ours")


@pytest.mark.parametrize("name", CASES)
@torch.inference_mode()
def test_encoder_and_log_probabilities_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Log-probabilities, because the likeliest token does not show a scale; padded rows, because of the bias."""
    write, options = CASES[name]
    theirs, ours = write(tmp_path / "theirs", **options), imported(tmp_path)
    config = ours.config
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(3, config.num_source_tokens, (3, 21), generator=generator)
    target = torch.randint(3, config.vocab_size, (3, 19), generator=generator)
    target[:, 0] = config.bos_id
    lengths = torch.tensor([21, 4, 1])
    mask = torch.arange(21) < lengths[:, None]
    # M2M100 tells positions by padding, so that it must stand there.
    source = source.masked_fill(
        ~mask, config.pad_id if config.source_embedding != "own" else config.num_source_tokens - 1
    )
    expected = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target)
    memory = ours.model.encode(source, lengths)
    assert float((memory - expected.encoder_last_hidden_state)[mask].abs().max()) <= 2e-5
    found = ours.model.project(ours.model(target, source, lengths)).log_softmax(-1)
    wanted = expected.logits.log_softmax(-1)
    assert float(wanted.exp().amax(-1).mean()) < 0.99  # there is something to compare
    torch.testing.assert_close(found, wanted, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "tied"),
    [("t5", True), ("flan-t5", False), ("marian-own-head", False), ("m2m100", True), ("mt5-tied", True)],
)
def test_a_head_is_the_models_own_if_the_file_has_another(name: str, tied: bool, tmp_path: Path) -> None:
    write, options = CASES[name]
    write(tmp_path / "theirs", **options)
    config = import_checkpoint(tmp_path / "theirs").config
    assert config.tied_embeddings == tied
    assert config.scale_projection == (name == "t5")


def test_a_pad_that_is_never_written_is_in_the_decoding(tmp_path: Path) -> None:
    write_marian(tmp_path / "theirs")
    ours = import_checkpoint(tmp_path / "theirs")
    decoding = ours.metadata["decoding"]
    assert decoding["suppressed_token_ids"] == [ours.config.pad_id] == [ours.config.bos_id]
    assert (decoding["beam_rules"], decoding["forced_end_token_id"]) == ("huggingface", 0)
    assert decoding["max_new_tokens"] == 29
    assert ours.model.embedding.token.weight[ours.config.pad_id].eq(0).all()


def test_config_json_says_how_to_decode_where_there_is_no_generation_config(tmp_path: Path) -> None:
    write_bart(tmp_path / "theirs")
    (tmp_path / "theirs" / "generation_config.json").unlink()
    change_json(
        tmp_path / "theirs" / "config.json",
        num_beams=4,
        length_penalty=2.0,
        early_stopping=True,
        no_repeat_ngram_size=3,
        forced_bos_token_id=0,
        max_length=20,
    )
    ours = import_checkpoint(tmp_path / "theirs")
    assert ours.metadata["task"] == "generate"
    assert ours.metadata["decoding"] == {
        "beam_rules": "huggingface",
        "beam_size": 4,
        "length_penalty": 2.0,
        "early_stopping": "always",
        "forced_begin_token_id": 0,
        "forced_end_token_id": 2,
        "suppressed_token_ids": [],
        "bad_token_sequences": [],
        "no_repeat_ngram_size": 3,
        "max_new_tokens": 19,
    }


@pytest.mark.parametrize(
    ("write", "options", "wanted"),
    [
        (write_marian, {}, ([], ["</s>"], ["<pad>"], [])),
        (write_marian, {"targets": ("deu", "fra")}, ([">>{target}<<"], ["</s>"], ["<pad>"], [])),
        (write_m2m100, {}, (["{source}"], ["</s>"], ["</s>"], ["{target}"])),
        (write_mbart, {}, ([], ["</s>", "{source}"], ["{target}"], [])),
        (write_mbart, {"languages": 52}, (["{source}"], ["</s>"], ["</s>"], ["{target}"])),
        (write_t5, {"targets": ("de", "en")}, (["<2{target}>"], ["</s>"], ["<pad>"], [])),
    ],
)
def test_tokens_around_a_text(
    write: Write, options: dict[str, Any], wanted: tuple[list[str], ...], tmp_path: Path
) -> None:
    write(tmp_path / "theirs", **options)
    ours = import_checkpoint(tmp_path / "theirs")
    found = ours.metadata["format"]
    fields = ("source_prefix", "source_suffix", "decoder_start", "target_prefix")
    assert tuple(found.get(field, []) for field in fields) == wanted or found["source_prefix"] == ["▁", "<2{target}>"]
    assert ["en", "de"] in ours.metadata["directions"]
    encoder, decoder = ours.tokenizer, ours.target_tokenizer or ours.tokenizer
    for field, tokenizer in zip(fields, (encoder, encoder, decoder, decoder), strict=True):
        for spelling in found.get(field, []):
            code = found["spellings"].get("de", "de")
            assert tokenizer.token_id(spelling.format(source=code, target=code)) < ours.config.vocab_size


def test_older_files_of_nllb_have_the_code_behind_the_text(tmp_path: Path) -> None:
    write_m2m100(tmp_path / "theirs", nllb=True)
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps({"legacy_behaviour": True}), "utf-8")
    metadata = import_checkpoint(tmp_path / "theirs").metadata
    assert metadata["format"]["source_prefix"] == []
    assert metadata["format"]["source_suffix"] == ["</s>", "{source}"]
    assert metadata["languages"] == ["en", "de", "zh-Hans", "zh-Hant"]
    assert metadata["format"]["spellings"]["zh-Hant"] == "zho_Hant"


def test_languages_can_be_fewer(tmp_path: Path) -> None:
    write_m2m100(tmp_path / "theirs")
    ours = import_checkpoint(tmp_path / "theirs", languages=(("en", "fr"), ("de",)))
    assert ours.metadata["directions"] == [["en", "de"], ["fr", "de"]]
    assert ours.metadata["format"]["spellings"] == {"en": "__en__", "fr": "__fr__", "de": "__de__"}
    with pytest.raises(ModelImportError, match="no source language xx; it has af, am"):
        import_checkpoint(tmp_path / "theirs", languages=(("xx",), ()))


def test_t5_translates_by_the_prefixes_of_its_file(tmp_path: Path) -> None:
    write_t5(tmp_path / "theirs")
    assert import_checkpoint(tmp_path / "theirs").metadata["task"] == "generate"
    tasks = {
        "translation_en_to_de": {"prefix": "translate English to German: "},
        "summarization": {"prefix": "summarize: "},
    }
    change_json(tmp_path / "theirs" / "config.json", task_specific_params=tasks)
    metadata = import_checkpoint(tmp_path / "theirs").metadata
    assert metadata["directions"] == [["en", "de"]]
    assert metadata["format"]["text_prefix"] == "translate {source} to {target}: "
    assert metadata["format"]["spellings"] == {"en": "English", "de": "German"}


def test_a_group_of_languages_is_listed_by_the_model_card_or_the_user(tmp_path: Path) -> None:
    write_marian(tmp_path / "theirs")
    change_json(tmp_path / "theirs" / "tokenizer_config.json", source_lang="gmw", target_lang="en")
    change_json(tmp_path / "theirs" / "tokenizer_config.json", source_lang="ROMANCE")
    with pytest.raises(ModelImportError, match="name them with --source-languages"):
        import_checkpoint(tmp_path / "theirs")
    given = import_checkpoint(tmp_path / "theirs", languages=(("fr", "it"), ()))
    assert given.metadata["directions"] == [["fr", "en"], ["it", "en"]]
    (tmp_path / "theirs" / "README.md").write_text(
        "---\nlanguage:\n- fr\n- es\n- en\nlicense: cc-by-4.0\n---\n", "utf-8"
    )
    listed = import_checkpoint(tmp_path / "theirs")
    assert listed.metadata["directions"] == [["fr", "en"], ["es", "en"]]
    assert listed.metadata["licence"] == "cc-by-4.0"
