import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model import checkpoint as checkpoint_module
from model.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from model.tokenizer import Tokenizer
from model.training.resume import STATE_FILE, last_checkpoint
from tests.model.samples import make_model


@pytest.fixture
def saved(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    folder = tmp_path / "model"
    model = make_model(vocab_size=tokenizer.vocab_size)
    save_checkpoint(Checkpoint(model, tokenizer, {"task": "translate", "note": "für später"}), folder)
    return folder


def test_a_checkpoint_comes_back_as_it_was(saved: Path, tokenizer: Tokenizer) -> None:
    loaded = load_checkpoint(saved)
    model = make_model(vocab_size=tokenizer.vocab_size)
    assert loaded.config == model.config
    assert loaded.dtype == torch.float32
    assert loaded.metadata == {"task": "translate", "note": "für später"}
    assert not loaded.model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor), name
    assert loaded.tokenizer.encode("Der Hund") == tokenizer.encode("Der Hund")


def test_half_precision_is_stored_and_computed_in_float32(saved: Path, tmp_path: Path) -> None:
    loaded = load_checkpoint(saved)
    loaded.dtype = torch.float16
    save_checkpoint(loaded, tmp_path / "half")
    assert {tensor.dtype for tensor in load_file(tmp_path / "half" / "model.safetensors").values()} == {torch.float16}
    again = load_checkpoint(tmp_path / "half")
    assert again.dtype == torch.float16
    assert {parameter.dtype for parameter in again.model.parameters()} == {torch.float32}


def test_every_missing_file_is_named(saved: Path) -> None:
    (saved / "config.json").unlink()
    (saved / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"is not a checkpoint: it lacks config\.json, tokenizer\.json"):
        load_checkpoint(saved)


def test_every_wrong_weight_is_named(saved: Path) -> None:
    path = saved / "model.safetensors"
    weights = load_file(path)
    del weights["decoder_norm.bias"], weights["encoder_norm.weight"]
    weights["final_bias"] = torch.zeros(3)
    weights["surplus"] = torch.zeros(1)
    save_file(weights, path)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(saved)
    message = str(caught.value)
    for fault in ("missing decoder_norm.bias", "missing encoder_norm.weight", "not of this model: surplus"):
        assert fault in message
    assert "final_bias has the shape (3,), the configuration asks for (360,)" in message


def test_a_tokenizer_of_another_model_is_refused(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text("utf-8")) | {"vocab_size": 100}
    (saved / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = load_file(saved / "model.safetensors")
    for name in ("embedding.token.weight", "final_bias"):
        weights[name] = weights[name][:100].clone()
    save_file(weights, saved / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tokenizer.json has 360 tokens, the model's vocab_size is 100"):
        load_checkpoint(saved)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "metadata.json"])
def test_a_damaged_file_is_refused(saved: Path, name: str) -> None:
    (saved / name).write_bytes(b"{damaged")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(saved)


class KilledError(Exception):
    """Stands for the end of the process."""


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> Iterator[None]:
    def killed(*args: object, **options: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killed)
        with pytest.raises(KilledError):
            yield


def test_a_killed_writer_leaves_the_old_checkpoint_whole(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_checkpoint(saved)
    loaded.metadata["note"] = "new"
    with killed_at(monkeypatch, checkpoint_module, "save_file"):
        save_checkpoint(loaded, saved)
    assert load_checkpoint(saved).metadata["note"] == "für später"
    save_checkpoint(loaded, saved)
    assert load_checkpoint(saved).metadata["note"] == "new"
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_between_the_two_renames_one_checkpoint_is_always_whole(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = saved.parent
    loaded, last = load_checkpoint(saved), run / "last"
    state = {STATE_FILE: {"x": torch.zeros(1)}}
    save_checkpoint(loaded, last, state)
    rename = Path.rename

    def killed_at_second(path: Path, target: Path) -> Path:
        if path.name == "last.partial":
            raise KilledError
        return rename(path, target)

    for _ in range(2):  # and once more from what the first left behind
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", killed_at_second)
            with pytest.raises(KilledError):
                save_checkpoint(loaded, last, state)
        assert last_checkpoint(run) == run / "last.old"
    save_checkpoint(loaded, last, state)
    assert last_checkpoint(run) == last
