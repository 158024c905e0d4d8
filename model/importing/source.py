"""A folder as `transformers` or `sentence-transformers` write it: its JSON files, its modules, its licence."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from model.importing.options import ModelImportError, Options

_REPOSITORY = re.compile(r"models--(?:.+--)?(.+)")
"""The folder that holds the snapshots of a model in the Hugging Face cache."""


class Module(NamedTuple):
    """A step of a sentence-transformers model: the class's name and the folder of its configuration."""

    kind: str
    folder: Path


@dataclass(frozen=True)
class SourceFolder:
    """`root` is what the user named, `transformer` the folder within it that has config.json, mostly the same."""

    root: Path
    transformer: Path
    modules: tuple[Module, ...]
    """In their order; empty where there is no modules.json."""

    @property
    def name(self) -> str:
        """The folder's name, or the model's where the folder is a snapshot in the Hugging Face cache."""
        root = self.root.resolve()
        cached = _REPOSITORY.fullmatch(root.parent.parent.name) if root.parent.name == "snapshots" else None
        return cached[1] if cached else root.name

    def options(self, path: Path, required: bool = False) -> Options:
        """The options in a JSON file, empty where there is none."""
        if not path.is_file() and not required:
            return Options(str(path), {})
        return Options(str(path), read_object(path))

    def licence(self) -> str | None:
        """What the front matter of README.md says, as model cards have it."""
        front = self._front_matter()
        stated = re.search(r"^license:[ \t]*(\S.*?)[ \t\r]*$", front, re.MULTILINE)
        return stated[1].strip("'\"") if stated else None

    def stated_languages(self) -> list[str]:
        """Those that the front matter of README.md lists."""
        stated = re.search(r"^languages?:[ \t]*(\S.*)?((?:\r?\n[ \t]*-[ \t]*\S+)*)", self._front_matter(), re.MULTILINE)
        if stated is None:
            return []
        return re.findall(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*", f"{stated[1] or ''} {stated[2]}")

    def _front_matter(self) -> str:
        path = self.root / "README.md"
        text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
        front = re.match(r"---\r?\n(.*?)\r?\n---", text, re.DOTALL)
        return front[1] if front else ""


def open_source(folder: Path) -> SourceFolder:
    """Find the parts of a model; ModelImportError names what is missing."""
    if not folder.is_dir():
        raise ModelImportError(f"there is no folder {folder}")
    modules = _modules(folder)
    transformer = modules[0].folder if modules else folder
    if not (transformer / "config.json").is_file():
        raise ModelImportError(f"{transformer} lacks config.json")
    return SourceFolder(folder, transformer, modules)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    values = _read_json(path)
    if not isinstance(values, dict):
        raise ModelImportError(f"{path} must hold a JSON object")
    return values


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelImportError(f"{path} cannot be read: {error}") from error


def _modules(folder: Path) -> tuple[Module, ...]:
    path = folder / "modules.json"
    if not path.is_file():
        return ()
    try:
        entries = [(str(entry["type"]), str(entry["path"])) for entry in _read_json(path)]
    except (KeyError, TypeError) as error:
        raise ModelImportError(f"{path} is not a list of modules with type and path: {error!r}") from error
    modules = []
    for kind, place in entries:
        if not (folder / place).resolve().is_relative_to(folder.resolve()):
            raise ModelImportError(f"{path}: the path {place!r} leads out of the folder")
        modules.append(Module(kind.rsplit(".", 1)[-1], folder / place))
    _check_modules(path, modules)
    return tuple(modules)


def _check_modules(path: Path, modules: list[Module]) -> None:
    kinds = [module.kind for module in modules]
    known = ("Transformer", "Pooling", "Normalize")
    if unknown := [f"{module.kind} ({module.folder.name})" for module in modules if module.kind not in known]:
        raise ModelImportError(
            f"{path}: this project has no module {', '.join(unknown)}; it has {', '.join(known)}, in this order"
        )
    if kinds not in (list(known[:2]), list(known)):
        raise ModelImportError(
            f"{path}: the modules are {', '.join(kinds) or 'none'}; they must be Transformer, Pooling and, if wanted, "
            "Normalize, in this order"
        )
