"""bfloat16: written like float16, and computed by no processor's ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

from export.convert import ExportOptions, export_bundle
from export.cuda.placement import problems
from model.checkpoint import Checkpoint


def test_a_bundle_in_bf16_says_that_its_parity_was_not_run(checkpoint: Checkpoint, tmp_path: Path) -> None:
    manifest = export_bundle(checkpoint, tmp_path / "tiny", ExportOptions(precisions=("bf16",)))
    report = manifest.parity["bf16"]
    assert (report.status, report.relative_error) == ("not_run", None)
    assert "bfloat16" in report.note
    decoder = manifest.precisions["bf16"].graphs["decoder"]
    assert {spec.dtype for spec in decoder.inputs if "_cache" in spec.name} == {"bfloat16"}
    assert problems(tmp_path / "tiny" / decoder.file) == []
