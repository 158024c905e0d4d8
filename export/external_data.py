"""Which files an ONNX graph takes its weights from, read off its bytes; free of onnx, because the server imports it.

Only the part of the format that names files is read: https://protobuf.dev/programming-guides/encoding and the field
numbers of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator

_GRAPH, _INITIALIZER, _EXTERNAL_DATA = 7, 5, 13
"""Fields of ModelProto, GraphProto and TensorProto."""

_KEY, _VALUE = 1, 2
"""Fields of StringStringEntryProto."""

_LOCATION = b"location"
"""The key under which a tensor names its file."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types."""


class GraphFormatError(ValueError):
    """Bytes that are no ONNX graph, or that may name files elsewhere than in the initializers of the main graph."""


def external_files(model: bytes) -> set[str]:
    """The files that the weights of `model` lie in, as they are named.

    Raises GraphFormatError where not all of them can be told: a name that stands in another place than where the
    exporter writes it, in a node or a function, is not looked for but refused.
    """
    files, count = set[str](), 0
    for graph in _parts(model, _GRAPH):
        for tensor in _parts(graph, _INITIALIZER):
            for entry in _parts(tensor, _EXTERNAL_DATA):
                keys = list(_parts(entry, _KEY))
                if _LOCATION in keys:
                    count += keys.count(_LOCATION)
                    files.update(value.decode("utf-8", "replace") for value in _parts(entry, _VALUE))
    # Whatever else would name a file has these bytes too.
    if model.count(_LOCATION) != count:
        raise GraphFormatError("weights may be named elsewhere than in the graph's initializers")
    return files


def _parts(message: bytes, wanted: int) -> Iterator[bytes]:
    """The values of the field `wanted` of a message, where they have a length."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _BYTES:
            length, position = _varint(message, position)
            if length > end - position:
                raise GraphFormatError("a field is longer than what holds it")
            if tag >> 3 == wanted:
                yield message[position : position + length]
            position += length
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise GraphFormatError(f"a field has the wire type {kind}")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number of 7 bits a byte from `position` on, and where it ends."""
    number = shift = 0
    for byte in message[position : position + 10]:
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise GraphFormatError("a number has no end")
