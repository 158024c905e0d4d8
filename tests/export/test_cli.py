"""The command line: exit codes, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.bundle import load_bundle
from export.cli import main
from export.manifest import MANIFEST_NAME
from model.checkpoint import Checkpoint, save_checkpoint


@pytest.fixture
def checkpoint_folder(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    save_checkpoint(checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_export_writes_a_bundle_and_says_so_but_replaces_one_only_by_force(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / MANIFEST_NAME).write_text("{}", "utf-8")
    arguments = [str(checkpoint_folder), str(folder), "--precision", "fp32", "--name", "en-de"]
    assert main(arguments) == 1
    assert "exists already; give another folder, or --force" in capsys.readouterr().err
    assert (folder / MANIFEST_NAME).read_text("utf-8") == "{}"
    assert main([*arguments, "--force"]) == 0
    captured = capsys.readouterr()
    assert "wrote" in captured.out
    assert "fp32: numbers differ by at most" in captured.out
    assert "tracing decoder" in captured.err
    bundle = load_bundle(folder)
    assert (bundle.name, bundle.precisions) == ("en-de", ("fp32",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "checkpoint"]


def test_missing_checkpoint_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere"), str(tmp_path / "bundle")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "is not a checkpoint: it lacks config.json" in error
    assert "Traceback" not in error


def test_unknown_precision_lists_what_is_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path), str(tmp_path / "bundle"), "--precision", "fp8"])
    assert caught.value.code == 2
    assert "choose from" in capsys.readouterr().err


def test_help_reads_well(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for word in ("CHECKPOINT", "BUNDLE", "--precision", "--force", "int4 is for decoders, fp16"):
        assert word in text
