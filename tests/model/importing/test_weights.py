from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.importing.convert import import_checkpoint
from model.importing.errors import ModelImportError
from tests.model.importing.folders import change_json, change_weights, make_theirs, write_folder


def refused(folder: Path) -> str:
    with pytest.raises(ModelImportError) as caught:
        import_checkpoint(folder)
    return str(caught.value)


def test_every_missing_unused_and_misshapen_weight_is_told_at_once(folder: Path) -> None:
    def damage(weights: dict[str, Tensor]) -> None:
        del weights["encoder.layer.1.attention.self.key.weight"], weights["embeddings.LayerNorm.bias"]
        weights["encoder.layer.2.output.dense.weight"] = torch.zeros(2, 2)
        weights["classifier.weight"] = torch.zeros(3, 16)
        weights["encoder.layer.0.intermediate.dense.weight"] = torch.zeros(24, 15)
        weights["encoder.layer.0.attention.self.value.weight"] = torch.zeros(16, 17)
        weights["encoder.layer.0.output.dense.bias"] = torch.zeros(16, dtype=torch.int8)

    change_weights(folder, damage)
    message = refused(folder)
    for fault in (
        f"{folder / 'model.safetensors'}: ",
        "missing embeddings.LayerNorm.bias (of which embedding.norm.bias is made)",
        "missing encoder.layer.1.attention.self.key.weight (of which encoder_layers.1.self_attention.query_key_value",
        "not of this model: classifier.weight",
        "not of this model: encoder.layer.2.output.dense.weight",
        "intermediate.dense.weight (24, 15): makes encoder_layers.0.feed_forward.expand.weight (24, 15), config.json",
        "encoder.layer.0.attention.self.value.weight (16, 17): the shapes do not fit each other",
        "encoder.layer.0.output.dense.bias (16,): the type is torch.int8",
    ):
        assert fault in message
    assert "key.bias" not in message
    assert "pooler" not in message


def test_what_is_left_out_is_told_and_why(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "theirs", make_theirs("bert", "ForPreTraining"))
    change_weights(folder, lambda weights: weights.update({"bert.embeddings.position_ids": torch.arange(24)[None]}))
    told: list[str] = []
    import_checkpoint(folder, report=told.append)
    left_out = [line for line in told if line.startswith("left out ")]
    assert any("bert.embeddings.position_ids: they count up" in line for line in left_out)
    assert any("bert.pooler.dense.bias, bert.pooler.dense.weight: the pooler" in line for line in left_out)
    assert any("cls.predictions.bias" in line and "heads of pre-training" in line for line in left_out)


def test_old_names_of_norms_are_known(folder: Path) -> None:
    expected = import_checkpoint(folder).model.state_dict()

    def age(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        return {f"bert.{re.sub('|'.join(old), lambda m: old[m[0]], name)}": tensor for name, tensor in weights.items()}

    change_weights(folder, age)
    found = import_checkpoint(folder).model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_two_names_of_one_weight_are_refused(folder: Path) -> None:
    name = "embeddings.word_embeddings.weight"
    change_weights(folder, lambda weights: weights.update({f"bert.{name}": weights[name].clone()}))
    assert f"bert.{name} and {name} are the same weight" in refused(folder)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "sharded", make_theirs("bert"), max_shard_size="8KB")
    assert not (folder / "model.safetensors").exists()
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    return folder


def test_shards_are_read_as_one(sharded: Path, folder: Path) -> None:
    whole, parts = import_checkpoint(folder), import_checkpoint(sharded)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(parts.model.state_dict()[name], tensor), name
    shards = sorted(sharded.glob("model-*.safetensors"))
    assert parts.metadata["source"]["sha256"] == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shards
    }


def test_every_missing_shard_is_named(sharded: Path) -> None:
    first, second, *_ = sorted(sharded.glob("model-*.safetensors"))
    first.unlink()
    second.unlink()
    assert f"lacks shards that model.safetensors.index.json names: {first.name}, {second.name}" in refused(sharded)


@pytest.mark.parametrize("place", ["../elsewhere.safetensors", "/etc/passwd", 3])
def test_an_index_leads_to_no_other_folder(sharded: Path, place: Any) -> None:
    change_json(sharded / "model.safetensors.index.json", weight_map={"embeddings.LayerNorm.bias": place})
    assert f"names files outside its folder: {place!r}" in refused(sharded)


@pytest.mark.parametrize("text", ["[]", "{}", "no json", '{"weight_map": 3}'])
def test_a_damaged_index_is_refused(sharded: Path, text: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    assert "model.safetensors.index.json is not an index of weights" in refused(sharded)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_pickles_are_refused_with_the_way_to_convert(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)
    message = refused(folder)
    assert f"has its weights in {name} only: a pickle can run any code" in message
    assert f"AutoModel.from_pretrained('{folder}').save_pretrained('{folder}')" in message


def test_safetensors_beside_a_pickle_are_taken(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04never read")
    assert import_checkpoint(folder).metadata["source"]["sha256"].keys() == {"model.safetensors"}


def test_a_folder_without_weights_says_so(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "has no weights: neither model.safetensors nor model.safetensors.index.json" in refused(folder)


def test_a_damaged_file_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(json.dumps({}).encode())
    assert f"{folder / 'model.safetensors'} cannot be read" in refused(folder)
