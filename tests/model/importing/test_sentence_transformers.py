from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from model.embedding import embed_texts
from model.importing.convert import import_checkpoint
from model.importing.options import ModelImportError
from tests.model.importing.folders import change_json, make_theirs, write_folder, write_json, write_modules

TEXTS = ["The dog sleeps.", "a", "", "Cats, eating: a big house and the small tree is not in the blue house!", "12 🙂"]


def refused(folder: Path) -> str:
    with pytest.raises(ModelImportError) as caught:
        import_checkpoint(folder)
    return str(caught.value)


@pytest.mark.parametrize(("mode", "pooling"), [("mean", "mean"), ("cls", "cls"), ("lasttoken", "last_token")])
@pytest.mark.parametrize("model_type", ["bert", "distilbert", "roberta"])
def test_embeddings_are_those_of_sentence_transformers(
    model_type: str, mode: Any, pooling: str, tmp_path: Path
) -> None:
    source = write_folder(tmp_path / "transformers", make_theirs(model_type))
    modules = [Transformer(str(source), max_seq_length=12), Pooling(16, mode), Normalize()]
    theirs = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", prompts={"query": "the house "})
    theirs.save(str(tmp_path / "saved"))
    ours = import_checkpoint(tmp_path / "saved")
    settings = ours.metadata["embedding"]
    assert (settings["pooling"], settings["normalize"], settings["max_input_tokens"]) == (pooling, True, 12)
    assert settings["prompts"]["query"] == "the house "
    expected = np.asarray(theirs.encode(TEXTS))
    assert np.abs(embed_texts(ours, TEXTS) - expected).max() <= 1e-5
    prompted = np.asarray(theirs.encode(TEXTS, prompt_name="query"))
    assert np.abs(embed_texts(ours, [f"the house {text}" for text in TEXTS]) - prompted).max() <= 1e-5


def test_files_of_versions_before_6_are_read(folder: Path) -> None:
    write_modules(folder)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 10, "do_lower_case": False})
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {"query": "search: ", "passage": ""}, "default_prompt_name": "query"},
    )
    assert import_checkpoint(folder).metadata["embedding"] == {
        "pooling": "mean",
        "normalize": True,
        "prompts": {"query": "search: ", "passage": ""},
        "default_prompt_name": "query",
        "max_input_tokens": 10,
    }


def test_a_transformer_in_a_folder_of_its_own_is_found(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    folder.rename(root / "0_Transformer")
    write_modules(root, "Transformer", "Pooling")
    entries = json.loads((root / "modules.json").read_text("utf-8"))
    entries[0]["path"] = "0_Transformer"
    write_json(root / "modules.json", entries)
    checkpoint = import_checkpoint(root)
    assert checkpoint.metadata["name"] == "root"
    assert checkpoint.metadata["embedding"]["normalize"] is False


def test_a_folder_without_modules_is_pooled_by_the_mean_or_as_asked_for(folder: Path) -> None:
    told: list[str] = []
    section = import_checkpoint(folder, report=told.append).metadata["embedding"]
    assert (section["pooling"], section["normalize"], section["max_input_tokens"]) == ("mean", False, 24)
    assert any("mean pooling" in line for line in told)
    told.clear()
    assert import_checkpoint(folder, pooling="cls", report=told.append).metadata["embedding"]["pooling"] == "cls"
    assert not any("mean pooling" in line for line in told)


def test_pooling_that_overrules_the_folder_is_told(folder: Path) -> None:
    write_modules(folder)
    told: list[str] = []
    assert import_checkpoint(folder, pooling="cls", report=told.append).metadata["embedding"]["pooling"] == "cls"
    assert "pooling is cls, as asked for, though the folder says mean" in told


@pytest.mark.parametrize(
    ("file", "values", "limit"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 24}, 24),
        ("sentence_bert_config.json", {"max_seq_length": 512}, 24),
        ("sentence_roberta_config.json", {"max_seq_length": 8}, 8),
        ("tokenizer_config.json", {"model_max_length": 20}, 20),
        ("tokenizer_config.json", {"model_max_length": 1e30}, 24),
        ("tokenizer_config.json", {}, 24),
    ],
)
def test_the_longest_input_is_what_is_stated_within_the_positions(
    folder: Path, file: str, values: dict[str, Any], limit: int
) -> None:
    write_json(folder / file, values)
    told: list[str] = []
    assert import_checkpoint(folder, report=told.append).metadata["embedding"]["max_input_tokens"] == limit
    assert any("allows 512 tokens, the model has 24" in line for line in told) == (values.get("max_seq_length") == 512)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (("Transformer", "Pooling", "Dense"), "this project has no module Dense (2_Dense); it has Transformer"),
        (("Transformer", "WeightedLayerPooling", "Dense"), "WeightedLayerPooling (1_WeightedLayerPooling), Dense"),
        (("Transformer", "Normalize"), "the modules are Transformer, Normalize; they must be Transformer, Pooling"),
        (("Pooling", "Transformer"), "the modules are Pooling, Transformer; they must be"),
    ],
)
def test_other_modules_are_refused_by_name(folder: Path, kinds: tuple[str, ...], message: str) -> None:
    write_modules(folder, *kinds)
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"type": "Transformer", "path": "../.."}]', "the path '../..' leads out of the folder"),
        ('[{"type": "Transformer"}]', "is not a list of modules with type and path"),
        ("3", "is not a list of modules with type and path"),
        ("[]", "the modules are none"),
        ("[", "cannot be read"),
    ],
)
def test_a_damaged_list_of_modules_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "modules.json").write_text(text, encoding="utf-8")
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("pooling", "message"),
    [
        ({"pooling_mode_max_tokens": True}, "pooling_mode is ['max'], allowed: one of cls, mean, lasttoken"),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "pooling_mode is ['cls', 'mean'], allowed",
        ),
        ({"pooling_mode": "weightedmean"}, "pooling_mode is ['weightedmean'], allowed"),
        ({"pooling_mode": ["cls", "mean"]}, "pooling_mode is ['cls', 'mean'], allowed"),
        ({"pooling_mode": 3}, "pooling_mode is 3, allowed"),
        ({"word_embedding_dimension": 12, "pooling_mode": "cls"}, "word_embedding_dimension is 12, allowed: 16"),
        ({"include_prompt": False, "pooling_mode": "mean"}, "include_prompt is False, allowed: True"),
    ],
)
def test_other_poolings_are_refused_by_name_and_value(folder: Path, pooling: dict[str, Any], message: str) -> None:
    write_modules(folder, pooling=pooling)
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "q: "}})
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("config_sentence_transformers.json", {"prompts": {"a": 3}}, "prompts is {'a': 3}, each must be a text"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "prompts is ['a'], it must be an object"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"a": ""}, "default_prompt_name": "b"},
            "default_prompt_name is 'b', the prompts are a",
        ),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length is 0, it must be a whole number"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask', allowed"),
        ("sentence_bert_config.json", {"do_lower_case": 1}, "do_lower_case is 1, it must be true or false"),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name is 'token_embe"),
        (
            "sentence_bert_config.json",
            {"modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}},
            "modality_config.text is {'method': 'forward', 'method_output_name': 'logits'}, allowed",
        ),
        (
            "tokenizer_config.json",
            {"do_lower_case": False},
            "do_lower_case is False, tokenizer.json has lowercase True",
        ),
    ],
)
def test_other_settings_are_refused_by_name_and_value(
    folder: Path, file: str, values: dict[str, Any], message: str
) -> None:
    write_modules(folder)
    write_json(folder / file, values)
    assert message in refused(folder)


def test_lower_casing_of_sentence_transformers_enters_the_tokenizer(folder: Path) -> None:
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": False}
    change_json(folder / "tokenizer.json", normalizer=normalizer | {"lowercase": False})
    cased = import_checkpoint(folder).tokenizer
    write_json(folder / "sentence_bert_config.json", {"do_lower_case": True})
    lowered = import_checkpoint(folder).tokenizer
    assert cased.encode("DOG") != cased.encode("dog")
    assert lowered.encode("DOG") == lowered.encode("dog") == cased.encode("dog")


def test_truncation_and_padding_of_the_file_are_removed(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    assert settings["truncation"]
    assert settings["padding"]
    encodings = import_checkpoint(folder).tokenizer.encodings(["the dog " * 30, "the"])
    assert [len(encoding.ids) for encoding in encodings] == [62, 3]


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "theirs", make_theirs("bert", vocab_size=30))
    message = refused(folder)
    assert f"{folder / 'tokenizer.json'} has the token id " in message
    assert "config.json says vocab_size 30" in message


def test_a_damaged_tokenizer_is_refused(folder: Path) -> None:
    write_json(folder / "tokenizer.json", {"model": {}})
    assert "tokenizer.json is not a tokenizer.json" in refused(folder)


def test_random_models_differ_so_that_parity_means_something() -> None:
    first, second = make_theirs("bert", seed=0), make_theirs("bert", seed=1)
    ids = torch.tensor([[5, 6, 7]])
    assert not torch.allclose(first(ids).last_hidden_state, second(ids).last_hidden_state, atol=0.1)
