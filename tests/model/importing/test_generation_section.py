"""What is kept beside a decoder: its ends, its chat template, how its makers sample from it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from export.description import describe
from model.importing.convert import import_checkpoint
from model.importing.options import ModelImportError
from tests.model.importing.decoders import END, make_byte_level_tokenizer, make_decoder, write_decoder
from tests.model.importing.folders import change_json, write_json

TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"


@pytest.fixture(scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("theirs") / "tiny", make_decoder("llama"))


@pytest.fixture
def folder(_written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(_written, tmp_path / "tiny"))


def section(folder: Path, notes: list[str] | None = None) -> dict[str, Any]:
    checkpoint = import_checkpoint(folder, report=([] if notes is None else notes).append)
    found: dict[str, Any] = checkpoint.metadata["generation"]
    describe(checkpoint, 4)  # as the exporter will read it
    return found


def test_a_folder_that_says_nothing_more_ends_as_its_configuration_does(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    assert section(folder) == {
        "eos_token_ids": [0],
        "adds_bos": False,
        "chat_template": None,
        "special_tokens": {},
        "sampling": {},
    }


def test_ends_are_those_that_generation_stops_at(folder: Path) -> None:
    write_json(folder / "generation_config.json", {"eos_token_id": [2, 0]})
    assert section(folder)["eos_token_ids"] == [2, 0]
    write_json(folder / "generation_config.json", {"eos_token_id": [300]})
    with pytest.raises(ModelImportError, match=r"eos_token_id is \[300\], vocab_size is 300"):
        section(folder)


def test_an_end_may_be_named_by_the_tokenizer_alone_or_not_at_all(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change_json(folder / "config.json", eos_token_id=None)
    notes: list[str] = []
    assert section(folder, notes)["eos_token_ids"] == []
    assert "no file names an end token: a continuation ends at its length only" in notes
    write_json(folder / "tokenizer_config.json", {"eos_token": {"content": "<|im_end|>"}, "bos_token": END})
    found = section(folder)
    assert found["eos_token_ids"] == [2]
    assert found["special_tokens"] == {"bos_token": END, "eos_token": "<|im_end|>"}


def test_a_token_before_each_text_is_noticed(folder: Path) -> None:
    make_byte_level_tokenizer(bos=END).save(str(folder / "tokenizer.json"))
    assert section(folder)["adds_bos"]
    write_json(folder / "tokenizer_config.json", {"add_bos_token": False})
    notes: list[str] = []
    assert section(folder, notes)["adds_bos"]
    assert [note for note in notes if "add_bos_token False, but tokenizer.json adds one, and is followed" in note]


@pytest.mark.parametrize("place", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json", "named"])
def test_a_chat_template_is_kept_wherever_it_stands(folder: Path, place: str) -> None:
    if place == "chat_template.jinja":
        (folder / place).write_text(TEMPLATE, "utf-8")
    elif place == "named":
        templates = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
        write_json(folder / "tokenizer_config.json", {"chat_template": templates})
    else:
        write_json(folder / place, {"chat_template": TEMPLATE})
    notes: list[str] = []
    assert section(folder, notes)["chat_template"] == TEMPLATE
    told = "of the chat templates tool_use, default the one called default is taken" in notes
    assert told == (place == "named")


def test_advice_on_sampling_is_kept_where_it_says_something(folder: Path) -> None:
    advice = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "typical_p": None}
    write_json(folder / "generation_config.json", advice | {"max_length": 50, "repetition_penalty": 1.05})
    assert section(folder)["sampling"] == {
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "repetition_penalty": 1.05,
    }


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("generation_config.json", {"top_p": 1.5}, "top_p is 1.5, it must be 0 to 1"),
        ("generation_config.json", {"temperature": -1}, "temperature is -1.0, it must be positive"),
        ("generation_config.json", {"top_k": 2.5}, "top_k is 2.5, it must be a whole number of at least 0"),
        ("tokenizer_config.json", {"chat_template": 3}, "chat_template is 3, it must be a text"),
        ("tokenizer_config.json", {"eos_token": 3}, "eos_token is 3, it must be a text"),
    ],
)
def test_what_cannot_be_read_is_refused(folder: Path, file: str, values: dict[str, Any], message: str) -> None:
    write_json(folder / file, values)
    with pytest.raises(ModelImportError) as caught:
        section(folder)
    assert message in str(caught.value)
