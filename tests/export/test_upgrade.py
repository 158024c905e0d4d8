"""A bundle is made again from its own weights: the same bytes, whichever format it had, and nothing of it is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from export.bundle import BundleError, load_bundle
from export.cli import main
from export.comparison import ParityError
from export.convert import ExportOptions, export_bundle
from export.manifest import MANIFEST_NAME
from export.upgrade import UpgradeError, upgrade_bundle
from model.checkpoint import Checkpoint
from model.piece_tokenizer import PieceTokenizer
from model.tokenizer import Tokenizer
from model.transformer import Transformer
from tests.export.conftest import ALIGNMENT, METADATA
from tests.export.models import make_encoder, make_model


def upgrade(folder: Path, calibration: Path | None = None) -> None:
    upgrade_bundle(folder, calibration, lambda _: None)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def to_format_2(folder: Path) -> None:
    """Write the manifest as format 2 had it; its weights had no index."""
    values = json.loads((folder / MANIFEST_NAME).read_text("utf-8"))
    ((task, head),) = values.pop("heads").items()
    limits = {"max_source_tokens": values["model"]["max_seq_len"], "max_target_tokens": values["model"]["max_seq_len"]}
    own = {key: value for key, value in head.items() if key not in ("graphs", "format", "limits", "decoding")}
    values |= {"format_version": 2, "task": task, "tokenizer": "tokenizer.json", "limits": limits}
    values |= {"decoding": {"num_candidates": 16, "beam_size": 4, "length_penalty": 1.0}}
    values |= {"languages": None, "embedding": None, "generation": None, "alignment": None}
    languages = own.pop("languages", None)
    if task == "translate":
        values |= {"languages": languages, "alignment": own.get("alignment")}
    else:
        values["languages"] = {"codes": languages, "directions": []} if languages else None
        values["embedding" if task == "embed" else "generation"] = own
    values["weights"] = {"dtype": "float16", "sha256": values["files"]["weights.bin"]["sha256"], **values.pop("card")}
    for name in ("min_onnxruntime", "tokenizers", "index", "calibration"):
        values.pop(name, None)
    values["files"].pop("weights.json")
    (folder / "weights.json").unlink()
    (folder / MANIFEST_NAME).write_text(json.dumps(values), "utf-8")


@pytest.fixture(scope="module")
def bundles(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle of each task with all that a manifest can say of it."""
    folder = tmp_path_factory.mktemp("bundles")
    size = tokenizer.vocab_size
    models: dict[str, tuple[Transformer, dict[str, Any], tuple[str, ...]]] = {
        "translate": (make_model(vocab_size=size), METADATA | {"alignment": ALIGNMENT}, ("fp32", "int8")),
        "embed": (
            make_encoder(vocab_size=size),
            {
                "task": "embed",
                "languages": ["de"],
                "embedding": {"pooling": "cls", "prompts": {"query": "q: "}, "max_input_tokens": 16},
            },
            ("int8",),
        ),
        "generate": (
            make_model(vocab_size=size, architecture="decoder", num_encoder_layers=0, positions="rotary"),
            {
                "task": "generate",
                "generation": {"eos_token_ids": [2, 5], "chat_template": "{{ messages }}"},
                "licence": "CC0",
            },
            ("fp16", "fp32", "int4"),
        ),
    }
    for name, (model, metadata, precisions) in models.items():
        model.load_state_dict({key: tensor.half().float() for key, tensor in model.state_dict().items()})
        checkpoint = Checkpoint(model, tokenizer, metadata, torch.float16)
        options = ExportOptions(precisions=precisions, attention=name == "translate")
        export_bundle(checkpoint, folder / name, options)
    return {name: folder / name for name in models}


@pytest.mark.parametrize("task", ["translate", "embed", "generate"])
@pytest.mark.parametrize("version", [2, 3])
def test_an_upgraded_bundle_is_what_the_checkpoint_would_give(
    bundles: dict[str, Path], tmp_path: Path, task: str, version: int
) -> None:
    folder = Path(shutil.copytree(bundles[task], tmp_path / task))
    if version == 2:
        to_format_2(folder)
    upgrade(folder)
    found, expected = bytes_of(folder), bytes_of(bundles[task])
    assert sorted(found) == sorted(expected)
    assert json.loads(found.pop(MANIFEST_NAME)) == json.loads(expected.pop(MANIFEST_NAME))
    assert found == expected


def test_weights_that_are_equal_are_found_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A graph has one name for them. A bundle of format 2 has no other place that tells, and is refused."""
    model = make_model(vocab_size=tokenizer.vocab_size, num_encoder_layers=2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.bias"):
                parameter.zero_()
    folder = tmp_path / "tiny"
    export_bundle(Checkpoint(model, tokenizer, METADATA), folder, ExportOptions(precisions=("fp32",)))
    before = bytes_of(folder)
    upgrade(folder)
    assert bytes_of(folder) == before
    to_format_2(folder)
    before = bytes_of(folder)
    with pytest.raises(UpgradeError, match=r"does not hold .*norm\.bias.*export it again from its checkpoint"):
        upgrade(folder)
    assert bytes_of(folder) == before


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text("utf-8"))
    edit(values)
    path.write_text(json.dumps(values), "utf-8")


def test_a_model_that_the_graphs_do_not_compute_is_refused(bundles: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundles["translate"], tmp_path / "tiny"))
    edit_json(folder / MANIFEST_NAME, lambda values: values["model"].update(activation="gelu"))
    before = bytes_of(folder)
    with pytest.raises(ParityError, match="computes something else than the model of its weights"):
        upgrade(folder)
    assert bytes_of(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_damaged_bundle_is_not_upgraded(bundles: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundles["embed"], tmp_path / "tiny"))
    data = bytearray((folder / "weights.bin").read_bytes())
    data[7] ^= 1
    (folder / "weights.bin").write_bytes(data)
    with pytest.raises(BundleError, match=r"weights\.bin has SHA-256"):
        upgrade(folder)
    to_format_2(folder)
    with pytest.raises(BundleError, match=r"weights\.bin has SHA-256"):
        upgrade(folder)


def test_other_calibration_texts_are_refused(bundles: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundles["embed"], tmp_path / "tiny"))
    (tmp_path / "texts.txt").write_text("der hund\n", "utf-8")
    with pytest.raises(UpgradeError, match=r"was calibrated on texts with the SHA-256 .*give the texts"):
        upgrade(folder, tmp_path / "texts.txt")


def test_weights_that_are_quantised_alone_cannot_be_made_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = make_model(vocab_size=tokenizer.vocab_size, architecture="decoder", num_encoder_layers=0)
    folder = tmp_path / "tiny"
    export_bundle(Checkpoint(model, tokenizer, {"task": "generate"}), folder, ExportOptions(precisions=("int4",)))
    with pytest.raises(UpgradeError, match=r"does not hold decoder_layers\.0\..* as numbers to compute with"):
        upgrade(folder)


def test_the_command_says_what_it_wrote_and_what_it_refused(
    bundles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(bundles["embed"], tmp_path / "tiny"))
    assert main(["upgrade", str(folder)]) == 0
    assert f"wrote {folder}: embed" in capsys.readouterr().out
    assert main(["upgrade", str(tmp_path)]) == 1
    assert "is not a bundle" in capsys.readouterr().err


def test_a_tokenizer_for_either_side_and_ids_apart_from_it_are_kept(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pieces = PieceTokenizer(tokenizer.backend, tokenizer.backend.get_vocab(), unknown_id=3)
    checkpoint = Checkpoint(make_model(vocab_size=tokenizer.vocab_size), pieces, METADATA, target_tokenizer=tokenizer)
    folder = tmp_path / "tiny"
    export_bundle(checkpoint, folder, ExportOptions(precisions=("fp32",)))
    before = bytes_of(folder)
    upgrade(folder)
    assert bytes_of(folder) == before
    specs = load_bundle(folder).manifest.tokenizers
    assert (specs.encoder.unknown_id, specs.decoder.unknown_id) == (3, None)
