"""A bundle that is not what its manifest says is refused, with a message that names the fault and what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.bundle import MAX_MANIFEST_BYTES, BundleError, find_bundles, load_bundle
from export.manifest import MANIFEST_NAME

Edit = Callable[[dict[str, Any]], object]


def edited(folder: Path, edit: Edit) -> Path:
    path = folder / MANIFEST_NAME
    values = json.loads(path.read_text("utf-8"))
    edit(values)
    path.write_text(json.dumps(values), "utf-8")
    return folder


def test_load_bundle_gives_paths_and_configuration(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    assert bundle.name == "tiny"
    assert bundle.precisions == ("fp32", "int8", "int4", "fp16")
    assert bundle.graph_path("int8", "decoder").is_file()
    assert bundle.tokenizer_path.is_file()
    assert bundle.config.d_model == 16
    assert bundle.manifest.languages is not None
    assert bundle.manifest.languages.directions == (("en", "de"), ("de", "en"))
    assert bundle.manifest.training == {"bleu": 12.5}
    assert bundle.manifest.weights["licence"] == "CC-BY-2.0"


def test_unknown_precision_names_those_there_are(bundle_folder: Path) -> None:
    with pytest.raises(BundleError, match=r"no precision 'fp8', only fp32, int8, int4, fp16.*--precision fp8"):
        load_bundle(bundle_folder).graph_path("fp8", "decoder")


def test_unknown_graph_names_those_there_are(bundle_folder: Path) -> None:
    with pytest.raises(BundleError, match="no graph 'classifier', only encoder, decoder"):
        load_bundle(bundle_folder).graph_path("fp32", "classifier")


def test_damaged_files_are_all_reported(copy_of_bundle: Callable[[], Path]) -> None:
    folder = copy_of_bundle()
    weights = folder / "weights.bin"
    data = bytearray(weights.read_bytes())
    data[100] ^= 1
    weights.write_bytes(data)
    (folder / "tokenizer.json").write_text("{}", "utf-8")
    (folder / "encoder.fp32.onnx").unlink()
    with pytest.raises(BundleError) as caught:
        load_bundle(folder)
    message = str(caught.value)
    assert "weights.bin has SHA-256" in message
    assert "tokenizer.json has 2 bytes instead of" in message
    assert "encoder.fp32.onnx is missing" in message
    assert "python -m export" in message


def test_link_out_of_the_bundle_is_refused(copy_of_bundle: Callable[[], Path], tmp_path: Path) -> None:
    folder = copy_of_bundle()
    outside = tmp_path / "weights.bin"
    (folder / "weights.bin").rename(outside)
    (folder / "weights.bin").symlink_to(outside)
    with pytest.raises(BundleError, match=r"weights\.bin is a link that leaves the bundle"):
        load_bundle(folder)


@pytest.mark.parametrize("version", [0, 1, 3, "2", None, True])
def test_unknown_format_version_is_refused(copy_of_bundle: Callable[[], Path], version: object) -> None:
    folder = edited(copy_of_bundle(), lambda values: values.update(format_version=version))
    with pytest.raises(
        BundleError, match=f"format_version {version!r}, this version of polyhead reads 2; export it again"
    ):
        load_bundle(folder)


def _escape(path: str) -> Edit:
    return lambda values: values["files"].update({path: values["files"]["tokenizer.json"]})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda values: values["precisions"]["int8"]["graphs"].pop("decoder"), "precision int8 has no graph 'decoder'"),
        (lambda values: values["precisions"].clear(), "precisions: Dictionary should have at least 1 item"),
        (lambda values: values["files"].pop("tokenizer.json"), r"files does not list the tokenizer tokenizer\.json"),
        (lambda values: values["files"].pop("decoder.fp16.onnx"), r"does not list decoder\.fp16\.onnx"),
        (lambda values: values["model"].update(num_heads=3), "d_model 16 is not a multiple of num_heads 3"),
        (lambda values: values.update(languages=None), "languages is missing"),
        (lambda values: values["languages"].update(codes=["de"]), r"directions use en, which codes \(de\) do not list"),
        (lambda values: values.update(task="paint"), "task: Input should be"),
        (lambda values: values.update(tokenizer="../tokenizer.json"), "must be a relative path inside the bundle"),
        (_escape("../../etc/passwd"), "must be a relative path inside the bundle"),
        (_escape("/etc/passwd"), "must be a relative path inside the bundle"),
        (_escape("a\\..\\b"), "must be a relative path inside the bundle"),
        (_escape("C:/weights.bin"), "must be a relative path inside the bundle"),
        (_escape(""), "must be a relative path inside the bundle"),
    ],
)
def test_invalid_manifest_is_refused(copy_of_bundle: Callable[[], Path], edit: Edit, message: str) -> None:
    folder = edited(copy_of_bundle(), edit)
    with pytest.raises(BundleError, match=message):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "holds a list, it must hold a JSON object"),
        ("[" * 100_000, "is not JSON"),
        (" " * (MAX_MANIFEST_BYTES + 1), "a manifest has at most"),
    ],
)
def test_unreadable_manifest_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(text, "utf-8")
    with pytest.raises(BundleError, match=message):
        load_bundle(tmp_path)


def test_folder_without_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"is not a bundle: there is no .*make one with"):
        load_bundle(tmp_path)


def test_fields_of_a_later_exporter_are_ignored(copy_of_bundle: Callable[[], Path]) -> None:
    folder = edited(copy_of_bundle(), lambda values: values.update(colour="green"))
    assert load_bundle(folder).name == "tiny"


def test_find_bundles_looks_one_level_deep(tmp_path: Path) -> None:
    for name in ("b", "a", "a/inner", "not-a-bundle"):
        (tmp_path / name).mkdir()
    for name in ("b", "a", "a/inner"):
        (tmp_path / name / MANIFEST_NAME).touch()
    assert find_bundles(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert find_bundles(tmp_path / "a") == [tmp_path / "a"]
    assert find_bundles(tmp_path / "not-a-bundle") == []
    with pytest.raises(BundleError, match="is not a folder"):
        find_bundles(tmp_path / "nowhere")


def test_reading_a_bundle_imports_neither_torch_nor_onnx() -> None:
    program = "import sys, export.bundle; print([m for m in ('torch', 'onnx', 'onnxruntime') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
