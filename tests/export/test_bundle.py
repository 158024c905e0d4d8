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
    assert bundle.translate.languages.directions == (("en", "de"), ("de", "en"))
    assert bundle.manifest.training == {"bleu": 12.5}
    assert bundle.manifest.card["licence"] == "CC-BY-2.0"
    stored = {name: (spec.storage, spec.dtype) for name, spec in bundle.manifest.weights.items()}
    assert stored == {"weights.bin": ("cast", "float16"), "weights.int4.bin": ("quantised", "int4")}
    with pytest.raises(BundleError, match="has no head 'embed', only translate"):
        bundle.embed  # noqa: B018


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


def test_the_format_before_is_refused_with_the_command_that_upgrades_it(copy_of_bundle: Callable[[], Path]) -> None:
    folder = edited(copy_of_bundle(), lambda values: values.update(format_version=2))
    with pytest.raises(BundleError, match=f"reads 3: upgrade it with `python -m export upgrade {folder}`"):
        load_bundle(folder)


@pytest.mark.parametrize("version", [0, 1, 4, "3", None, True])
def test_unknown_format_version_is_refused(copy_of_bundle: Callable[[], Path], version: object) -> None:
    folder = edited(copy_of_bundle(), lambda values: values.update(format_version=version))
    with pytest.raises(
        BundleError, match=f"format_version {version!r}, this version of polyhead reads 3; export it again"
    ):
        load_bundle(folder)


def _escape(path: str) -> Edit:
    return lambda values: values["files"].update({path: values["files"]["tokenizer.json"]})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda values: values["precisions"]["int8"]["graphs"].pop("decoder"), "precision int8 has no graph 'decoder'"),
        (lambda values: values["precisions"].clear(), "precisions: Dictionary should have at least 1 item"),
        (lambda values: values["files"].pop("tokenizer.json"), r"files does not list tokenizer\.json, a tokenizer"),
        (lambda values: values["files"].pop("weights.bin"), r"files does not list weights\.bin, a weights file"),
        (lambda values: values["files"].pop("decoder.fp16.onnx"), r"does not list decoder\.fp16\.onnx"),
        (lambda values: values["model"].update(num_heads=3), "d_model 16 is not a multiple of num_heads 3"),
        (lambda values: values["heads"]["translate"].pop("languages"), "translate.languages: Field required"),
        (
            lambda values: values["heads"]["translate"]["languages"].update(codes=["de"]),
            r"directions use en, which codes \(de\) do not list",
        ),
        (
            lambda values: values["heads"]["translate"]["graphs"].pop("encoder"),
            "heads.translate: graphs does not say which graph is the encoder",
        ),
        (
            lambda values: values["heads"]["translate"]["decoding"].update(suppressed_token_ids=[5, 10**6]),
            "decoding.suppressed_token_ids has 1000000, the vocabulary has 301 tokens",
        ),
        (
            lambda values: values["heads"].update(embed={"graphs": {}, "pooling": "cls", "max_input_tokens": 8}),
            "heads.embed: architecture is 'encoder_decoder', it must be",
        ),
        (lambda values: values.update(heads={"paint": {}}), "heads: .*are paint; this version serves translate, embed"),
        (lambda values: values.update(min_onnxruntime="newest"), "min_onnxruntime: String should match"),
        (lambda values: values["tokenizers"].update(source=values["tokenizers"]["shared"]), "it must be shared, or"),
        (
            lambda values: values["tokenizers"]["shared"].update(file="../tokenizer.json"),
            "must be a relative path inside the bundle",
        ),
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
    def add(values: dict[str, Any]) -> None:
        values["colour"] = "green"
        values["heads"]["paint"] = {"graphs": {"encoder": "encoder", "head": "paint"}}

    folder = edited(copy_of_bundle(), add)
    assert list(load_bundle(folder).manifest.heads.present()) == ["translate"]


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


def test_weights_that_files_does_not_list_are_refused(copy_of_bundle: Callable[[], Path]) -> None:
    """Neither `files` nor `weights` names them, the graphs do: they could be changed unseen."""

    def hide(values: dict[str, Any]) -> None:
        values["files"].pop("weights.bin")
        values["weights"].pop("weights.bin")

    folder = edited(copy_of_bundle(), hide)
    with pytest.raises(BundleError, match=r"encoder\.fp16\.onnx takes weights from 'weights\.bin', which files"):
        load_bundle(folder)


def test_a_manifest_that_is_a_link_out_of_the_bundle_is_refused(
    copy_of_bundle: Callable[[], Path], tmp_path: Path
) -> None:
    folder = copy_of_bundle()
    (folder / MANIFEST_NAME).rename(tmp_path / "elsewhere.json")
    (folder / MANIFEST_NAME).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(BundleError, match=r"manifest\.json is a link that leaves the bundle"):
        load_bundle(folder)


def test_a_bundle_behind_a_link_is_read(copy_of_bundle: Callable[[], Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(copy_of_bundle())
    assert load_bundle(tmp_path / "link").name == "tiny"


@pytest.mark.parametrize(("digits", "message"), [(5000, "is not JSON"), (4000, r"has format_version 3+\.\.\.3+, this")])
def test_a_version_of_very_many_digits_is_refused(
    copy_of_bundle: Callable[[], Path], digits: int, message: str
) -> None:
    folder = copy_of_bundle()
    path = folder / MANIFEST_NAME
    path.write_text(
        path.read_text("utf-8").replace('"format_version": 3', f'"format_version": {"3" * digits}'), "utf-8"
    )
    with pytest.raises(BundleError, match=message) as caught:
        load_bundle(folder)
    assert len(str(caught.value)) < 1000
