"""Find, verify and read bundles. Free of torch and onnx: this is the side of the exporter that the server imports.

A bundle that is not exactly what its manifest says is refused as a whole: `load_bundle` reads every byte once and
reports everything that is wrong, not the first thing only.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pydantic import ValidationError

from export.external_data import GraphFormatError, external_files
from export.heads import Embed, Generate, Head, Translate
from export.manifest import FORMAT_VERSION, MANIFEST_NAME, FileRecord, GraphSpec, Manifest
from model.config import ModelConfig

HeadT = TypeVar("HeadT", bound=Head)

UPGRADABLE_VERSION = 2
"""The format that `python -m export upgrade` makes the present one of."""

MAX_MANIFEST_BYTES = 4 * 1024 * 1024
"""A manifest is tens of kilobytes; more is not one, and is not read into memory."""


class BundleError(ValueError):
    """A bundle that cannot be used; the message names the folder, each fault, and what to do."""


@dataclass(frozen=True)
class Bundle:
    """A verified bundle: `path` is its folder."""

    path: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def config(self) -> ModelConfig:
        return self.manifest.config

    @property
    def translate(self) -> Translate:
        """The section of the head translate; BundleError without one."""
        return self._head("translate", self.manifest.heads.translate)

    @property
    def embed(self) -> Embed:
        """The section of the head embed; BundleError without one."""
        return self._head("embed", self.manifest.heads.embed)

    @property
    def generate(self) -> Generate:
        """The section of the head generate; BundleError without one."""
        return self._head("generate", self.manifest.heads.generate)

    def _head(self, name: str, section: HeadT | None) -> HeadT:
        if section is None:
            given = ", ".join(self.manifest.heads.present())
            raise BundleError(f"bundle {self.path} has no head {name!r}, only {given}")
        return section

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that this bundle holds, for instance ("fp32", "int8")."""
        return tuple(self.manifest.precisions)

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer of what an encoder reads, or of all."""
        return self.path / self.manifest.tokenizers.encoder.file

    def graph(self, precision: str, name: str) -> GraphSpec:
        """The description of a graph; BundleError when the bundle lacks the precision or the graph."""
        spec = self.manifest.precisions.get(precision)
        if spec is None:
            raise BundleError(
                f"bundle {self.path} has no precision {precision!r}, only {', '.join(self.precisions)}; "
                f"choose one of these or export it again with --precision {precision}"
            )
        if name not in spec.graphs:
            raise BundleError(f"bundle {self.path} has no graph {name!r}, only {', '.join(spec.graphs)}")
        return spec.graphs[name]

    def graph_path(self, precision: str, name: str) -> Path:
        """The ONNX file of a graph; BundleError when the bundle lacks the precision or the graph."""
        return self.path / self.graph(precision, name).file


def load_bundle(path: Path) -> Bundle:
    """Read and verify the bundle in the folder `path`: format, required graphs, and every file's size and checksum.

    Raises BundleError with every fault that was found.
    """
    manifest = read_manifest(path)
    check_files(path, manifest.files)
    _check_graphs(path, manifest)
    return Bundle(path, manifest)


def check_files(path: Path, files: Mapping[str, FileRecord]) -> None:
    """BundleError with every file of the bundle in `path` that is not what `files` says."""
    problems = [problem for name, record in files.items() if (problem := _file_problem(path, name, record)) is not None]
    if problems:
        raise BundleError(
            f"bundle {path} is damaged: {'; '.join(problems)}. Copy it again from where it came from, "
            f"or make it again with `python -m export CHECKPOINT {path} --force`"
        )


def _check_graphs(path: Path, manifest: Manifest) -> None:
    """BundleError where a graph takes weights from a file that is not listed, and so may be anything."""
    problems = []
    for file in sorted(manifest.graph_files()):
        try:
            named = external_files((path / file).read_bytes())
        except GraphFormatError as error:
            problems.append(f"{file} is not a graph as the exporter writes them: {error}")
            continue
        folder = PurePosixPath(file).parent
        problems += [
            f"{file} takes weights from {name!r}, which files does not list"
            for name in sorted(named)
            if str(folder / name) not in manifest.files
        ]
    if problems:
        raise BundleError(f"bundle {path} is refused: {'; '.join(problems)}. Export it again with `python -m export`")


def find_bundles(folder: Path) -> list[Path]:
    """The bundles in `folder` by name: `folder` itself if it is one, else its immediate sub-folders that are.

    Raises BundleError when `folder` is no folder. A folder without bundles gives an empty list.
    """
    if not folder.is_dir():
        raise BundleError(f"{folder} is not a folder; give the folder that holds the bundles")
    if (folder / MANIFEST_NAME).is_file():
        return [folder]
    return sorted(entry for entry in folder.iterdir() if (entry / MANIFEST_NAME).is_file())


def read_manifest(path: Path) -> Manifest:
    """Read the manifest in the folder `path` without looking at the other files; BundleError if it is invalid."""
    values = read_json(path)
    version = values.get("format_version")
    if version == UPGRADABLE_VERSION and not isinstance(version, bool):
        raise BundleError(
            f"bundle {path} has format_version {version}, this version of polyhead reads {FORMAT_VERSION}: "
            f"upgrade it with `python -m export upgrade {path}`"
        )
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise BundleError(
            f"bundle {path} has format_version {reprlib.repr(version)}, this version of polyhead reads "
            f"{FORMAT_VERSION}; export it again with this version, or install the version that made it"
        )
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'manifest'}: {problem['msg']}" for problem in error.errors()
        )
        raise BundleError(
            f"{path / MANIFEST_NAME} is not a valid manifest: {problems}. "
            "Export the bundle again with `python -m export`"
        ) from error


def file_record(path: Path) -> FileRecord:
    """The checksum and size of a file, as the manifest holds them."""
    with path.open("rb") as file:
        return FileRecord(sha256=hashlib.file_digest(file, "sha256").hexdigest(), size=path.stat().st_size)


def read_json(path: Path) -> dict[str, Any]:
    """The values in the manifest in the folder `path`, of any format; BundleError where they cannot be read."""
    manifest_path = path / MANIFEST_NAME
    if not manifest_path.is_file():
        raise BundleError(
            f"{path} is not a bundle: there is no {manifest_path}; make one with `python -m export CHECKPOINT {path}`"
        )
    if not manifest_path.resolve().is_relative_to(path.resolve()):
        raise BundleError(f"{manifest_path} is a link that leaves the bundle; copy the file itself there")
    size = manifest_path.stat().st_size
    if size > MAX_MANIFEST_BYTES:
        raise BundleError(f"{manifest_path} has {size} bytes, a manifest has at most {MAX_MANIFEST_BYTES}")
    try:
        values = json.loads(manifest_path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{manifest_path} is not JSON: {error}. Copy or export the bundle again") from error
    if not isinstance(values, dict):
        raise BundleError(f"{manifest_path} holds a {type(values).__name__}, it must hold a JSON object")
    return values


def _file_problem(root: Path, name: str, record: FileRecord) -> str | None:
    path = root / name
    if not path.is_file():
        return f"{name} is missing"
    # The names were checked as the manifest was read; a symbolic link could still lead elsewhere.
    if not path.resolve().is_relative_to(root.resolve()):
        return f"{name} is a link that leaves the bundle"
    size = path.stat().st_size
    if size != record.size:
        return f"{name} has {size} bytes instead of {record.size}"
    found = file_record(path)
    if found.sha256 != record.sha256:
        return f"{name} has SHA-256 {found.sha256} instead of {record.sha256}"
    return None
