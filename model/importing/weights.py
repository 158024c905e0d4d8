"""The tensors of a folder, by safetensors or `torch.load(weights_only=True)`, and how a family's table fills our model.

A pickle can run any code while it is read. With `weights_only` PyTorch reads tensors and plain containers and refuses
all else, so that is the one way in which one is opened here. See https://pytorch.org/docs/stable/notes/serialization.html.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.importing.family import Family, Weight
from model.importing.options import ModelImportError
from model.transformer import Transformer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_LFS_POINTER = b"version https://git-lfs"
_GGUF = b"GGUF"


class WeightFiles(Mapping[str, Tensor]):
    """The tensors of one file, or of the shards that an index names; each is read when it is asked for."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self._files: dict[str, Mapping[str, Tensor]] = {}
        twice = []
        for path in paths:
            _refuse_other_formats(path)
            file = _open_safetensors(path) if path.suffix == ".safetensors" else _open_pickle(path)
            twice += [name for name in file if name in self._files]
            self._files |= dict.fromkeys(file, file)
        if twice:
            raise ModelImportError(f"{paths[0].parent}: weights that are in two shards: {', '.join(twice)}")

    @classmethod
    def find(cls, folder: Path) -> WeightFiles:
        """The weights of a folder, safetensors before pickles; ModelImportError for a folder without any."""
        for name in (WEIGHTS, PICKLE):
            index = INDEX if name == WEIGHTS else PICKLE_INDEX
            if (folder / name).is_file():
                return cls([folder / name])
            if (folder / index).is_file():
                return cls(_shards(folder, index))
        hint = ""
        if others := sorted(path.name for path in folder.glob("*.gguf")):
            hint = f"; {', '.join(others)} is of llama.cpp: import the model that it was made of"
        elif others := [
            name for name in ("tf_model.h5", "flax_model.msgpack", "rust_model.ot") if (folder / name).is_file()
        ]:
            hint = f"; {', '.join(others)} is of another framework: let transformers write {WEIGHTS} of it"
        raise ModelImportError(f"{folder} has no weights: neither {WEIGHTS}, {INDEX} nor {PICKLE}{hint}")

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name][name]

    def sha256(self) -> dict[str, str]:
        """The SHA-256 of each file, hex."""
        digests = {}
        for path in self.paths:
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        return digests


class _Safetensors(Mapping[str, Tensor]):
    """A file of safetensors, mapped."""

    def __init__(self, path: Path) -> None:
        self._file: Any = safe_open(path, framework="pt")  # in part untyped
        self._names: list[str] = list(self._file.keys())  # type: ignore[no-untyped-call]

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _open_safetensors(path: Path) -> Mapping[str, Tensor]:
    try:
        return _Safetensors(path)
    except (SafetensorError, OSError) as error:
        raise ModelImportError(f"{path} cannot be read: {error}") from error


def _open_pickle(path: Path) -> Mapping[str, Tensor]:
    """A mapped file, as all are since PyTorch 1.6; an older one, which is no zip archive, is read whole."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelImportError(
            f"{path} holds more than weights, so it is refused: a pickle can run any code while it is read ({reason})"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise ModelImportError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ModelImportError(f"{path} must hold tensors by name, it holds {type(found).__name__}")
    return found


def _refuse_other_formats(path: Path) -> None:
    """Refuse a Git LFS pointer, and a file of another format than its name says."""
    with path.open("rb") as file:
        start = file.read(len(_LFS_POINTER))
    if start == _LFS_POINTER:
        raise ModelImportError(
            f"{path} is a pointer of Git LFS, not the weights: fetch them with `git lfs pull` in its folder"
        )
    if start.startswith(_GGUF):
        raise ModelImportError(f"{path} is GGUF, the format of llama.cpp: import the model that it was made of")


def renamed(family: Family, files: Mapping[str, Tensor]) -> tuple[dict[str, str], list[str]]:
    """The names of the family's table -> those of the files, and the names that turn out the same."""
    names: dict[str, str] = {}
    problems = []
    for original in files:
        name = original
        for pattern, replacement in family.renames:
            name = re.sub(pattern, replacement, name)
        if name in names:
            problems.append(f"{names[name]} and {original} are the same weight")
        names[name] = original
    return names, problems


class RenamedWeights(Mapping[str, Tensor]):
    """The tensors of files by the names of a family's table."""

    def __init__(self, family: Family, files: Mapping[str, Tensor]) -> None:
        self._names, self._files = renamed(family, files)[0], files

    def __getitem__(self, name: str) -> Tensor:
        return self._files[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _shards(folder: Path, index: str) -> list[Path]:
    path = folder / index
    try:
        names = sorted(set(json.loads(path.read_text("utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelImportError(f"{path} is not an index of weights: {error!r}") from error
    if strange := [name for name in names if not isinstance(name, str) or Path(name).name != name]:
        raise ModelImportError(f"{path} names files outside its folder: {', '.join(map(repr, strange))}")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ModelImportError(f"{folder} lacks shards that {index} names: {', '.join(missing)}")
    return [folder / name for name in names]


def fill(model: Transformer, family: Family, files: WeightFiles) -> tuple[torch.dtype, dict[str, list[str]]]:
    """Copy the weights into `model`; returns the type to store them in and, by reason, the names left out.

    ModelImportError lists every weight that is missing, not of this model, of another shape or not of numbers.
    """
    names, problems = renamed(family, files)
    state = model.state_dict()
    used: set[str] = set()
    dtypes: set[torch.dtype] = set()
    table = {weight.ours: weight for weight in family.weights(model.config)}
    if set(table) != set(state):
        raise ModelImportError(f"the family's table and the model differ: {', '.join(sorted(set(table) ^ set(state)))}")
    for ours, named in table.items():
        used.update((*named.theirs, *named.copies))
        weight, differing = _among_copies(named, names, files)
        problems += differing
        if missing := [name for name in weight.theirs if name not in names]:
            problems += [f"missing {name} (of which {ours} is made)" for name in missing]
            continue
        tensors = [files[names[name]] for name in weight.theirs]
        dtypes |= {tensor.dtype for tensor in tensors}
        problems += _copy(state[ours], weight, tensors)
    left_out: dict[str, list[str]] = {}
    for name in (name for name in names if name not in used):
        reasons = [ignored.reason for ignored in family.ignored if re.fullmatch(ignored.pattern, name)]
        if reasons:
            left_out.setdefault(reasons[0], []).append(names[name])
        else:
            problems.append(f"not of this model: {names[name]}")
    if problems:
        raise ModelImportError(f"{', '.join(str(path) for path in files.paths)}: {'; '.join(problems)}")
    return dtypes.pop() if len(dtypes) == 1 else torch.float32, left_out


def _among_copies(weight: Weight, names: Mapping[str, str], files: WeightFiles) -> tuple[Weight, list[str]]:
    """The weight by the first of its names that is there, and the names whose tensors are not the same."""
    found = [name for name in (*weight.theirs, *weight.copies) if name in names] if weight.copies else []
    if not found:
        return weight, []
    first = files[names[found[0]]]
    differing = [name for name in found[1:] if not torch.equal(files[names[name]], first)]
    problems = [f"{name} differs from {found[0]}, of which it must be a copy" for name in differing]
    return weight._replace(theirs=(found[0],)), problems


def _copy(target: Tensor, weight: Weight, tensors: list[Tensor]) -> list[str]:
    """Make our weight of theirs, in place; the problem, if there is one."""
    theirs = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in zip(weight.theirs, tensors, strict=True))
    if strange := {str(tensor.dtype) for tensor in tensors if not tensor.is_floating_point()}:
        return [f"{theirs}: the type is {', '.join(sorted(strange))}, it must be a floating one"]
    try:
        made = weight.transform(tensors)
    except (RuntimeError, IndexError) as error:
        return [f"{theirs}: the shapes do not fit each other ({error})"]
    if made.shape != target.shape:
        return [f"{theirs}: makes {weight.ours} {tuple(made.shape)}, config.json asks for {tuple(target.shape)}"]
    target.copy_(made)
    return []
