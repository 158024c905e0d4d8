from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from model.importing.convert import import_checkpoint
from model.importing.options import ModelImportError
from tests.model.importing.folders import change_json, change_weights, make_theirs, write_folder, write_json


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


def as_pickle(folder: Path, **saving: Any) -> Path:
    """The folder with its weights in pytorch_model.bin instead."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin", **saving)
    (folder / "model.safetensors").unlink()
    return folder / "pytorch_model.bin"


@pytest.mark.parametrize("is_zip", [True, False], ids=["mapped", "before 1.6"])
def test_weights_in_a_pickle_are_the_same(folder: Path, is_zip: bool) -> None:
    wanted = import_checkpoint(folder).model.state_dict()
    path = as_pickle(folder, _use_new_zipfile_serialization=is_zip)
    assert zipfile.is_zipfile(path) == is_zip
    found = import_checkpoint(folder)
    assert found.metadata["source"]["sha256"].keys() == {"pytorch_model.bin"}
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.model.state_dict().items())


def test_shards_of_pickles_are_read(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"pytorch_model-{index % 2}.bin" for index, name in enumerate(weights)}
    for shard in set(places.values()):
        torch.save({name: weights[name] for name in weights if places[name] == shard}, folder / shard)
    write_json(folder / "pytorch_model.bin.index.json", {"weight_map": places})
    assert import_checkpoint(folder).metadata["source"]["sha256"].keys() == set(places.values())


class Intruder:
    """Runs a function as it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("intruded"),)


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_that_holds_more_than_weights_is_refused_and_not_run(
    folder: Path, is_zip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"a": Intruder()}, folder / "pytorch_model.bin", _use_new_zipfile_serialization=is_zip)
    assert "pytorch_model.bin holds more than weights, so it is refused: a pickle can run any code" in refused(folder)
    assert not (folder / "intruded").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid", "is a pointer of Git LFS, not the"),
        ("pytorch_model.bin", b"version https://git-lfs.github.com/spec/v1\noid", "is a pointer of Git LFS, not the"),
        ("model.safetensors", b"GGUF\x03\0\0\0", "is GGUF, the format of llama.cpp: import the model that it was"),
        ("model.Q4_K_M.gguf", b"GGUF", "model.Q4_K_M.gguf is of llama.cpp: import the model that it was made of"),
        ("tf_model.h5", b"HDF", "tf_model.h5 is of another framework: let transformers write model.safetensors of it"),
        ("pytorch_model.bin", b"no pickle at all", "pytorch_model.bin"),
    ],
)
def test_what_only_looks_like_weights_is_named(folder: Path, name: str, content: bytes, message: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    assert message in refused(folder)


def test_safetensors_beside_a_pickle_are_taken(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04never read")
    assert import_checkpoint(folder).metadata["source"]["sha256"].keys() == {"model.safetensors"}


def test_a_folder_without_weights_says_so(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "has no weights: neither model.safetensors, model.safetensors.index.json nor pytorch_model.bin" in refused(
        folder
    )


def test_a_damaged_file_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(json.dumps({}).encode())
    assert f"{folder / 'model.safetensors'} cannot be read" in refused(folder)
