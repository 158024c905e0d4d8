from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model.importing.convert import import_checkpoint
from model.importing.options import ModelImportError
from tests.model.importing.folders import change_json, make_theirs, write_folder


def refused(folder: Path) -> str:
    with pytest.raises(ModelImportError) as caught:
        import_checkpoint(folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key', allowed: 'absolute'"),
        ({"is_decoder": True}, "is_decoder is True, allowed: False"),
        ({"add_cross_attention": True}, "add_cross_attention is True, allowed: False"),
        ({"hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu', allowed: relu, gelu, "),
        ({"hidden_act": ["gelu"]}, "hidden_act is ['gelu'], allowed: relu, "),
        ({"hidden_size": "16"}, "hidden_size is '16', it must be a whole number of at least 1"),
        ({"hidden_size": None}, "hidden_size is None, it must be a whole number of at least 1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, it must be a whole number of at least 1"),
        ({"num_attention_heads": True}, "num_attention_heads is True, it must be a whole number of at least 1"),
        ({"num_attention_heads": 3}, "makes no model: d_model 16 is not a multiple of num_heads 3"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps is 'small', it must be a number"),
        (
            {"auto_map": {"AutoModel": "code.Model"}, "new_trick": True},
            "new_trick is True, which only the repository's own code (auto_map) knows: not imported",
        ),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}, allowed: None, {}"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is {'0': [1]}, allowed: None, {}"),
        ({"pad_token_id": 99}, "pad_id is 99, allowed: 0 to vocab_size - 1"),
        ({"model_type": "opt"}, "model_type is 'opt', the families that can be imported are bert, distilbert, roberta"),
        ({"model_type": None}, "model_type is None, the families that can be imported are bert"),
        ({"model_type": ["bert"]}, "model_type is ['bert'], the families that can be imported are bert"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name_and_value(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    change_json(folder / "config.json", **changes)
    found = refused(folder)
    assert found.startswith(str(folder / "config.json"))
    assert message in found


def test_code_of_a_repository_is_left_out_where_the_options_are_the_familys(folder: Path) -> None:
    change_json(folder / "config.json", auto_map={"AutoModel": "code.Model"})
    (folder / "code.py").write_text("raise SystemExit")
    notes: list[str] = []
    import_checkpoint(folder, report=notes.append)
    assert any("the repository's own code (auto_map) is left out" in note for note in notes)


def test_all_faults_of_a_configuration_are_told_at_once(folder: Path) -> None:
    change_json(folder / "config.json", is_decoder=True, hidden_act="tanh", vocab_size=-1)
    message = refused(folder)
    assert [word for word in ("is_decoder", "hidden_act", "vocab_size") if word not in message] == []


def test_roberta_needs_positions_behind_those_of_padding(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "theirs", make_theirs("roberta"))
    change_json(folder / "config.json", max_position_embeddings=2)
    assert "max_position_embeddings is 2, it must be a whole number of at least 3" in refused(folder)


def test_the_folder_and_its_files_must_be_there(folder: Path, tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == f"there is no folder {tmp_path / 'none'}"
    (folder / "tokenizer.json").unlink()
    message = refused(folder)
    assert f"{folder} lacks tokenizer.json; make it where transformers is installed" in message
    assert "AutoTokenizer.from_pretrained(" in message
    (folder / "config.json").unlink()
    assert refused(folder) == f"{folder} lacks config.json"


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_a_damaged_configuration_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    assert refused(folder).startswith(str(folder / "config.json"))


def test_the_name_and_the_licence_are_kept(folder: Path, tmp_path: Path) -> None:
    assert import_checkpoint(folder).metadata["name"] == "tiny-bert"
    assert import_checkpoint(folder, name="other").metadata["name"] == "other"
    assert "licence" not in import_checkpoint(folder).metadata
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n\nlicense: mit\n", encoding="utf-8")
    assert import_checkpoint(folder).metadata["licence"] == "apache-2.0"
    snapshot = tmp_path / "models--someone--small-encoder" / "snapshots" / "0123abcd"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    assert import_checkpoint(snapshot).metadata["name"] == "small-encoder"
