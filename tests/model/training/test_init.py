from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import Checkpoint, CheckpointError, load_checkpoint
from model.config import ConfigError
from model.tokenizer import Tokenizer
from model.training.config import InitConfig, load_training_config
from model.training.reports import Progress
from tests.model.samples import make_trainer, training_config


def trained(folder: Path, tokenizer: Tokenizer, **model: Any) -> Checkpoint:
    make_trainer(training_config(model=model, max_steps=2), folder, tokenizer).run(Progress())
    return load_checkpoint(folder / "final")


def test_a_run_starts_from_all_of_another_checkpoint(tmp_path: Path, tokenizer: Tokenizer) -> None:
    initial = trained(tmp_path / "first", tokenizer)
    config = training_config(init=InitConfig("first", whole=True), max_steps=3)
    trainer = make_trainer(config, tmp_path / "second", initial.tokenizer, initial=initial)
    weights = initial.model.state_dict()
    for model in (trainer.model, trainer.average):
        assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    trainer.run(Progress())
    assert not torch.equal(trainer.model.state_dict()["final_bias"], weights["final_bias"])
    assert trainer.checkpoint().metadata["training"]["init"] == {
        "name": "tiny",
        "steps": 2,
        "data": [{"path": "pairs.tsv", "weight": 1.0, "licence": ""}],
    }


def test_the_whole_of_a_checkpoint_fits_only_its_own_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    initial = trained(tmp_path / "first", tokenizer, num_decoder_layers=2)
    config = training_config(init=InitConfig("first", whole=True), model={"num_decoder_layers": 1, "dropout": 0.1})
    with pytest.raises(CheckpointError, match=r"cannot start from first: num_decoder_layers is 2 there and 1 here$"):
        make_trainer(config, tmp_path / "second", tokenizer, initial=initial)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("whole = true\nencoder_layers = [0]", r"init.encoder_layers is \[0\], init.whole takes all: leave one out"),
        ("", "model.architecture is 'decoder': init takes encoder layers, or all with init.whole = true"),
    ],
)
def test_a_fault_of_init_is_named(tmp_path: Path, init: str, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        f'name = "x"\n[objective]\nkind = "causal_lm"\n[init]\ncheckpoint = "a"\n{init}\n'
        '[model]\narchitecture = "decoder"\nnum_decoder_layers = 1\n'
        '[data]\nlanguages = ["en"]\n[[data.train]]\npath = "a.txt"\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError, match=message):
        load_training_config(path)
