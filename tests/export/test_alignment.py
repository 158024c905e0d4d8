"""What the manifest says about word alignment comes from the checkpoint, and fits the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from export.bundle import load_bundle
from export.convert import ExportOptions, export_bundle
from export.description import ExportError
from export.heads import Alignment
from export.manifest import MANIFEST_NAME, Manifest
from model.checkpoint import Checkpoint


def manifest_with(bundle_folder: Path, alignment: dict[str, Any]) -> Manifest:
    values = json.loads((bundle_folder / MANIFEST_NAME).read_text("utf-8"))
    values["heads"]["translate"]["alignment"] = alignment
    return Manifest.model_validate(values)


def test_the_checkpoints_alignment_is_in_the_manifest(with_attention: tuple[Checkpoint, Path]) -> None:
    checkpoint, folder = with_attention
    bundle = load_bundle(folder)
    alignment = bundle.translate.alignment
    assert alignment == Alignment(layer=0, head=1, shifted=True, aggregate="none", error_rate=0.25)
    assert checkpoint.metadata["alignment"] == alignment.model_dump()
    assert "alignment" not in bundle.manifest.card


def test_a_bundle_without_alignment_says_so(bundle_folder: Path) -> None:
    assert load_bundle(bundle_folder).translate.alignment is None


def test_an_alignment_that_cannot_be_read_stops_the_export(checkpoint: Checkpoint, tmp_path: Path) -> None:
    metadata = checkpoint.metadata | {"alignment": {"layer": -1}}
    faulty = Checkpoint(checkpoint.model, checkpoint.tokenizer, metadata)
    with pytest.raises(ExportError, match=r"metadata.json: (.|\n)*translate\.alignment\.layer"):
        export_bundle(faulty, tmp_path / "faulty", ExportOptions(precisions=("fp32",)))


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        ({"layer": 1}, "alignment.layer is 1, the decoder has 1 layers"),
        ({"layer": 0, "head": 2, "aggregate": "none"}, "alignment.head is 2, a layer has 2 heads"),
        ({"layer": 0, "head": 0}, "head is 0 and aggregate 'mean'"),
        ({"layer": 0, "aggregate": "none"}, "head is None and aggregate 'none'"),
    ],
)
def test_an_alignment_that_the_model_does_not_have_is_refused(
    bundle_folder: Path, alignment: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        manifest_with(bundle_folder, alignment)
