"""The index of a bundle's weights: where each tensor of the model lies, so that the model can be made of the bundle.

Graphs name weights too, but find them by their values: where two are equal, one of the names is not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from export.manifest import GraphSpec
from export.weights import Array, WeightError, WeightFile

INDEX_NAME = "weights.json"

_TRANSPOSED = ".transposed"


def write_index(folder: Path, tensors: Mapping[str, Array], file: WeightFile, packed: set[str]) -> None:
    """Write where `file` holds each of `tensors`, which is given a place if no graph gave it one.

    Those in `packed`, which the bundle holds as quantised weights alone, are left out. Tables that the model computes
    are tensors too: their last bits differ from machine to machine.
    """
    places: dict[str, dict[str, Any]] = {}
    for name, array in tensors.items():
        offset, is_transposed = file.place(array), False
        if offset is None and array.ndim == 2:
            offset = file.place(array.T)
            is_transposed = offset is not None
        if offset is None and name in packed:
            continue
        if offset is None:  # one that no graph reads, or reads in another form
            offset = file.tensor(name, array).offset
        places[name] = {"dtype": array.dtype.name, "shape": list(array.shape), "offset": offset}
        if is_transposed:
            places[name]["transposed"] = True
    text = json.dumps({file.name: places}, indent=1)
    (folder / INDEX_NAME).write_text(f"{text}\n", encoding="utf-8")


def read_index(folder: Path, index: str) -> dict[str, Array]:
    """The tensors of the model by name, mapped from the weights files; WeightError where the index is no index."""
    tensors: dict[str, Array] = {}
    try:
        for file, places in json.loads((folder / index).read_text("utf-8")).items():
            for name, place in places.items():
                shape = tuple(place["shape"])
                stored = shape[::-1] if place.get("transposed") else shape
                array = np.memmap(folder / file, place["dtype"], "r", place["offset"], stored)
                tensors[name] = array.T if place.get("transposed") else array
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightError(f"{folder / index} does not say where the weights lie: {error!r}") from error
    return tensors


def read_graphs(folder: Path, graphs: list[GraphSpec]) -> dict[str, Array]:
    """The tensors of the model by name, as the graphs of a bundle of format 2 name them, which had no index."""
    tensors = {}
    for graph in graphs:
        for value in ir.load(folder / graph.file).graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                array = value.const_value.numpy()
                name = str(value.name)
                tensors[name.removesuffix(_TRANSPOSED)] = array.T if name.endswith(_TRANSPOSED) else array
    return tensors
