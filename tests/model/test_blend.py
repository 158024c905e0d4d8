from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from model.__main__ import main
from model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tests.model.samples import make_trainer, tiny_tokenizer, training_config


def checkpoint(folder: Path, seed: int, **model: int) -> Checkpoint:
    """A fresh model in `folder`."""
    trainer = make_trainer(training_config(seed=seed, model=model), folder / "run", tiny_tokenizer())
    made = dataclasses.replace(trainer.checkpoint(), dtype=torch.float16)
    made.metadata |= {"name": f"model {seed}", "alignment": {"layer": 0}}
    save_checkpoint(made, folder)
    return load_checkpoint(folder)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_weights_lie_between_those_of_the_two(tmp_path: Path, share: float) -> None:
    first, second = checkpoint(tmp_path / "first", 1), checkpoint(tmp_path / "second", 2)
    arguments = [str(tmp_path / name) for name in ("first", "second", "blended")]
    assert main(["blend", *arguments, "--share", str(share)]) == 0
    blended = load_checkpoint(tmp_path / "blended")
    assert blended.dtype == torch.float16
    for name, weight in blended.model.state_dict().items():
        between = (1 - share) * first.model.state_dict()[name] + share * second.model.state_dict()[name]
        torch.testing.assert_close(weight, between, rtol=1e-3, atol=1e-4)
    assert blended.metadata["name"] == "model 2"
    assert "alignment" not in blended.metadata  # it is measured on the weights
    assert blended.metadata["training"]["blended_with"] == {"name": "model 1", "share": 1 - share}
    assert "scores" not in blended.metadata["training"]


def test_what_cannot_be_blended_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path / "first", 1)
    checkpoint(tmp_path / "wider", 2, d_ff=48)
    first, wider, new = (str(tmp_path / name) for name in ("first", "wider", "new"))
    for arguments, message in (
        ([first, wider, new], "the two checkpoints cannot be blended: d_ff is 32 and 48"),
        ([first, first, new, "--share", "1.5"], "the share of the second checkpoint is 1.5, allowed: 0 to 1"),
        ([first, first, wider], f"{wider} exists already; give another folder"),
    ):
        assert main(["blend", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_other_vocabularies_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path / "first", 1)
    checkpoint(tmp_path / "second", 2)
    path = tmp_path / "second" / "tokenizer.json"
    path.write_text(path.read_text("utf-8").replace("<2de>", "<2fr>"), "utf-8")
    arguments = [str(tmp_path / name) for name in ("first", "second", "new")]
    assert main(["blend", *arguments]) == 2
    assert "their tokenizers differ" in capsys.readouterr().err
