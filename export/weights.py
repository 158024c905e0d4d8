"""One weights file for every graph and precision of a bundle: each tensor once, in the checkpoint's own data type.

A graph that computes in another type than the weights are stored in has a Cast behind each of them. ONNX Runtime folds
such constant arithmetic once as it loads the graph, so it costs no time in a step, and a bundle of three precisions
is no larger than one of them. See docs/decisions/0010-one-weights-file.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

WEIGHTS_NAME = "weights.bin"
QUANTISED_NAME = "weights.int4.bin"
"""Of weights that graphs multiply with as they are stored."""

ALIGNMENT = 64
"""Bytes; a cache line, which also suits every vector unit that may read a mapped file."""

MAX_INLINE_BYTES = 4096
"""Constants up to this size (axes, scalars) stay in the graph; a larger one must be a weight of the checkpoint."""

PACKED_SUFFIXES = (".int4", ".int4.scale")
"""How the constants end that `export.quantize_blocks` puts in the place of weights."""

ADDED_SUFFIXES = (".scale", ".zero_point", *PACKED_SUFFIXES)
"""How the constants end that `export.quantize` and `export.quantize_blocks` add to a graph."""

Array = NDArray[Any]
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class WeightError(ValueError):
    """A graph holds a large constant that no weight of the checkpoint accounts for."""


@dataclass
class WeightFile:
    """The contents of a weights file as they grow: equal tensors share one place."""

    folder: Path
    name: str = WEIGHTS_NAME
    _chunks: list[bytes] = field(default_factory=list)
    _places: dict[tuple[str, bytes], tuple[int, int]] = field(default_factory=dict)
    _size: int = 0

    def tensor(self, name: str, array: Array) -> ir.ExternalTensor:
        """Give `array` a place in the file, or the one that it already has, and return the reference to it."""
        data = np.ascontiguousarray(array).tobytes()
        key = _content(array.dtype, data)
        if key not in self._places:
            padding = -self._size % ALIGNMENT
            self._places[key] = (self._size + padding, len(data))
            self._chunks += [bytes(padding), data]
            self._size += padding + len(data)
        offset, length = self._places[key]
        return ir.ExternalTensor(
            self.name,
            offset,
            length,
            ir.DataType.from_numpy(array.dtype),
            shape=ir.Shape(array.shape),
            name=name,
            base_dir=self.folder,
        )

    def place(self, array: Array) -> int | None:
        """Where `array` begins, in bytes; None where it has no place."""
        place = self._places.get(_content(array.dtype, np.ascontiguousarray(array).tobytes()))
        return None if place is None else place[0]

    @property
    def is_empty(self) -> bool:
        """Whether nothing has a place in it."""
        return not self._places

    def save(self) -> Path:
        """Write the file into the folder and return its path."""
        path = self.folder / self.name
        with path.open("wb") as file:
            file.writelines(self._chunks)
        return path


def _content(dtype: np.dtype[Any], data: bytes) -> tuple[str, bytes]:
    return dtype.str, hashlib.sha256(data).digest()


class StoredWeights:
    """The tensors of a checkpoint as they are stored, to be found again by the values that a traced graph holds.

    The tracer renames, transposes and merges weights as it folds constants, so a name cannot identify them; values can.
    """

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = tensors
        self._indexes: dict[np.dtype[Any], dict[tuple[tuple[int, ...], bytes], tuple[str, Array]]] = {}

    def find(self, values: Array) -> tuple[str, Array] | None:
        """The name and the stored form of the weight whose values, in the type of `values`, are these."""
        index = self._indexes.get(values.dtype)
        if index is None:
            index = self._indexes[values.dtype] = self._index(values.dtype)
        return index.get(_key(values))

    def _index(self, dtype: np.dtype[Any]) -> dict[tuple[tuple[int, ...], bytes], tuple[str, Array]]:
        index: dict[tuple[tuple[int, ...], bytes], tuple[str, Array]] = {}
        for name, stored in self._tensors.items():
            values = stored.astype(dtype)
            if values.ndim == 2:
                index.setdefault(_key(values.T), (f"{name}.transposed", stored.T))
            index[_key(values)] = (name, stored)
        return index


def _key(values: Array) -> tuple[tuple[int, ...], bytes]:
    return values.shape, hashlib.sha256(np.ascontiguousarray(values).tobytes()).digest()


def bind_weights(
    model: ir.Model, weights: StoredWeights, file: WeightFile, packed_file: WeightFile | None = None
) -> None:
    """Move the weights that `model` holds in memory to `file`, with a Cast behind those stored in another type.

    Constants that the exporter added go to a file as they are: packed weights to `packed_file`, by default the same,
    and scales to `file`. Raises WeightError with every large constant of the traced graph that is no weight.
    """
    unknown = []
    graph = model.graph
    for value in list(graph.initializers.values()):
        if value.const_value is None or not value.const_value.shape:
            continue
        array = value.const_value.numpy()
        found = weights.find(array) if value.dtype in _FLOATS else None
        if found is None and array.ndim == 3:  # a matrix cut into heads
            found = weights.find(array.reshape(-1, array.shape[-1])) if value.dtype in _FLOATS else None
        if found is not None:
            _replace(graph, value, file.tensor(*found))
        elif array.nbytes <= MAX_INLINE_BYTES:
            continue
        elif str(value.name).endswith(ADDED_SUFFIXES):
            is_packed = str(value.name).endswith(PACKED_SUFFIXES)
            chosen = packed_file if is_packed and packed_file is not None else file
            value.const_value = chosen.tensor(str(value.name), array)
        else:
            unknown.append(f"{value.name} {array.shape} of {array.nbytes} bytes")
    if unknown:
        raise WeightError(
            f"the graph holds constants that are no weights of the checkpoint: {'; '.join(unknown)}; "
            "this is a fault of the exporter, please report it"
        )


def _replace(graph: ir.Graph, value: ir.Value, tensor: ir.ExternalTensor) -> None:
    """Let the users of `value` read `tensor` instead, through a Cast if the types differ."""
    graph.initializers.pop(str(value.name), None)
    stored = graph.initializers.get(tensor.name)
    if stored is None:
        stored = ir.Value(name=tensor.name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        graph.initializers.add(stored)
    if stored.shape != value.shape:
        value.replace_all_uses_with(_reshape(graph, stored, value))
        return
    if stored.dtype == value.dtype:
        value.replace_all_uses_with(stored)
        return
    assert value.dtype is not None
    for use in list(value.uses()):
        if use.node.op_type == "Gather" and use.idx == 0:
            _cast_gathered(graph, use.node, stored, value.dtype)
    if value.uses():
        value.replace_all_uses_with(_cast(graph, stored, value.dtype))


def _reshape(graph: ir.Graph, stored: ir.Value, wanted: ir.Value) -> ir.Value:
    """`stored` in the type and shape of `wanted`."""
    assert wanted.dtype is not None
    assert wanted.shape is not None
    source = stored if stored.dtype == wanted.dtype else _cast(graph, stored, wanted.dtype)
    numbers = np.array(wanted.shape.numpy(), np.int64)
    shape = ir.tensor(numbers, name=f"{wanted.name}.shape")
    constant = ir.Value(
        name=shape.name, shape=ir.Shape(numbers.shape), type=ir.TensorType(shape.dtype), const_value=shape
    )
    graph.initializers.add(constant)
    node = ir.node("Reshape", [source, constant], name=f"{wanted.name}.reshape")
    result = node.outputs[0]
    result.name, result.dtype, result.shape = node.name, wanted.dtype, wanted.shape
    producer = source.producer()
    if producer is None:
        graph.insert_before(graph[0], node)
    else:
        graph.insert_after(producer, node)
    return result


def _cast(graph: ir.Graph, stored: ir.Value, dtype: ir.DataType) -> ir.Value:
    """The Cast of a stored weight to `dtype`, made once however many users it has."""
    for use in stored.uses():
        if use.node.op_type == "Cast":
            return use.node.outputs[0]
    cast = ir.node("Cast", [stored], attributes={"to": dtype}, name=f"{stored.name}.cast")
    result = cast.outputs[0]
    result.name, result.dtype, result.shape = f"{stored.name}.cast", dtype, stored.shape
    graph.insert_before(graph[0], cast)
    return result


def _cast_gathered(graph: ir.Graph, gather: ir.Node, table: ir.Value, dtype: ir.DataType) -> None:
    """Cast the rows that a lookup takes, not the whole table, which would then be kept in two types."""
    gather.replace_input_with(0, table)
    rows = gather.outputs[0]
    cast = ir.node("Cast", [rows], attributes={"to": dtype}, name=f"{rows.name}.cast")
    cast.outputs[0].name = f"{rows.name}.cast"
    cast.outputs[0].dtype, cast.outputs[0].shape = dtype, rows.shape
    rows.replace_all_uses_with(cast.outputs[0])
    cast.replace_input_with(0, rows)
    assert table.dtype is not None
    rows.dtype = table.dtype
    graph.insert_after(gather, cast)
