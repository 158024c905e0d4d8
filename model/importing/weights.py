"""The safetensors files of a folder, and how a family's table fills our model from them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.importing.errors import ModelImportError
from model.importing.family import Family, Weight
from model.transformer import Transformer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth")


class WeightFiles:
    """The tensors of one file, or of the shards that an index names; each is read when it is asked for."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self._files: dict[str, Any] = {}
        twice = []
        for path in paths:
            try:
                file: Any = safe_open(path, framework="pt")  # in part untyped
                names = list(file.keys())
            except (SafetensorError, OSError) as error:
                raise ModelImportError(f"{path} cannot be read: {error}") from error
            twice += [name for name in names if name in self._files]
            self._files |= dict.fromkeys(names, file)
        if twice:
            raise ModelImportError(f"{paths[0].parent}: weights that are in two shards: {', '.join(twice)}")

    @classmethod
    def find(cls, folder: Path) -> WeightFiles:
        """The weights of a folder; ModelImportError for a folder without, or with pickles only."""
        if (folder / WEIGHTS).is_file():
            return cls([folder / WEIGHTS])
        if (folder / INDEX).is_file():
            return cls(_shards(folder))
        pickles = [name for name in _PICKLES if (folder / name).is_file()]
        if not pickles:
            raise ModelImportError(f"{folder} has no weights: neither {WEIGHTS} nor {INDEX}")
        raise ModelImportError(
            f"{folder} has its weights in {', '.join(pickles)} only: a pickle can run any code while it is read, so it "
            'is refused; convert it where you trust it: python -c "from transformers import AutoModel; '
            f"AutoModel.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor

    def sha256(self) -> dict[str, str]:
        """The SHA-256 of each file, hex."""
        digests = {}
        for path in self.paths:
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        return digests


def _shards(folder: Path) -> list[Path]:
    path = folder / INDEX
    try:
        names = sorted(set(json.loads(path.read_text("utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelImportError(f"{path} is not an index of weights: {error!r}") from error
    if strange := [name for name in names if not isinstance(name, str) or Path(name).name != name]:
        raise ModelImportError(f"{path} names files outside its folder: {', '.join(map(repr, strange))}")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ModelImportError(f"{folder} lacks shards that {INDEX} names: {', '.join(missing)}")
    return [folder / name for name in names]


def fill(model: Transformer, family: Family, files: WeightFiles) -> tuple[torch.dtype, dict[str, list[str]]]:
    """Copy the weights into `model`; returns the type to store them in and, by reason, the names left out.

    ModelImportError lists every weight that is missing, not of this model, of another shape or not of numbers.
    """
    names, problems = _renamed(family, files)
    state = model.state_dict()
    used: set[str] = set()
    dtypes: set[torch.dtype] = set()
    table = {weight.ours: weight for weight in family.weights(model.config)}
    if set(table) != set(state):
        raise ModelImportError(f"the family's table and the model differ: {', '.join(sorted(set(table) ^ set(state)))}")
    for ours, weight in table.items():
        used.update(weight.theirs)
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


def _renamed(family: Family, files: WeightFiles) -> tuple[Mapping[str, str], list[str]]:
    """The names of the table -> those of the files, and the names that turn out the same."""
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
