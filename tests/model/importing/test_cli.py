from __future__ import annotations

from pathlib import Path

import pytest

from model.__main__ import main
from model.checkpoint import load_checkpoint


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["import", *arguments]) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_folder_becomes_a_checkpoint(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "ours"
    assert main(["import", str(folder), str(target), "--name", "mine", "--pooling", "cls"]) == 0
    captured = capsys.readouterr()
    assert f"wrote {target}: mine (bert), 0.0 M parameters, d_model 16, 2 layers, task embed" in captured.out
    assert "left out pooler.dense.bias, pooler.dense.weight" in captured.err
    loaded = load_checkpoint(target)
    assert loaded.metadata["name"] == "mine"
    assert loaded.metadata["embedding"]["pooling"] == "cls"
    assert loaded.tokenizer.encodings(["dog"])[0].tokens == ["[CLS]", "dog", "[SEP]"]


def test_what_is_there_is_replaced_only_by_force(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "ours"
    assert main(["import", str(folder), str(target)]) == 0
    assert "exists already; give another folder, or --force" in fails(capsys, str(folder), str(target))
    assert main(["import", str(folder), str(target), "--force", "--name", "second"]) == 0
    assert load_checkpoint(target).metadata["name"] == "second"
    assert "is not a checkpoint, so --force does not replace it" in fails(capsys, str(folder), str(folder), "--force")
    assert (folder / "model.safetensors").is_file()


def test_a_refusal_is_one_line_and_writes_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "model.safetensors").unlink()
    target = tmp_path / "ours"
    error = fails(capsys, str(folder), str(target))
    assert error.startswith(f"error: {folder} has no weights: neither model.safetensors")
    assert not target.exists()
