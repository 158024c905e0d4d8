"""Reports as numbers: JSON, JSON with base64 in it, and npz."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from service.heads.attend.report import AttentionReport, KindMaps
from service.heads.attend.tokens import Token, TokenSequence
from service.heads.attend.word_alignment import WordAlignment

_DIGITS = 4

FloatName = Literal["float16", "float32"]


def to_json(report: AttentionReport) -> bytes:
    """The weights as nested lists (layers, heads, queries, keys), rounded to four digits."""
    return _dump(report, lambda weights: np.round(weights, _DIGITS))


def to_base64_json(report: AttentionReport, dtype: FloatName) -> bytes:
    """The weights as {"dtype", "shape", "data"}: little-endian numbers in the order of the shape, in base64."""

    def encode(weights: NDArray[np.float32]) -> dict[str, Any]:
        data = np.ascontiguousarray(weights, dtype="<f2" if dtype == "float16" else "<f4")
        return {"dtype": dtype, "shape": list(data.shape), "data": base64.b64encode(data.tobytes()).decode("ascii")}

    return _dump(report, encode)


def _dump(report: AttentionReport, encode: Callable[[NDArray[np.float32]], Any]) -> bytes:
    values = describe(report)
    values["maps"] = {maps.kind: _maps_entry(report, maps, encode) for maps in report.maps}
    if report.norms is not None:
        values["norms"] = {maps.kind: _maps_entry(report, maps, encode) for maps in report.norms}
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)


def _maps_entry(
    report: AttentionReport, maps: KindMaps, encode: Callable[[NDArray[np.float32]], Any]
) -> dict[str, Any]:
    return {**describe_maps(maps), "weights": encode(maps.weights)}


def describe_maps(maps: KindMaps) -> dict[str, Any]:
    """Which maps these are: `heads` is null where they are aggregated."""
    return {
        "layers": list(maps.layers),
        "heads": None if maps.heads is None else list(maps.heads),
        "shape": list(maps.weights.shape),
    }


def describe(report: AttentionReport) -> dict[str, Any]:
    """Everything but the weights, ready for JSON."""
    values: dict[str, Any] = {"model": report.model, "task": report.task, "text": report.text}
    if report.source is not None:
        values["source"] = _sequence(report.source)
    if report.target is not None:
        values["target"] = _sequence(report.target)
        if report.predictions is not None:
            for token, predicted in zip(values["target"]["tokens"], report.predictions, strict=True):
                token["predicts"] = None if predicted is None else {"id": predicted.id, "text": predicted.text}
    values["aggregate"] = report.aggregate
    values["words"] = report.words
    if report.alignment is not None:
        values["alignment"] = _alignment(report.alignment)
    return values


def _sequence(sequence: TokenSequence) -> dict[str, Any]:
    return {"texts": list(sequence.texts), "tokens": [asdict(token) for token in sequence.tokens]}


def _alignment(alignment: WordAlignment) -> dict[str, Any]:
    def words(tokens: Sequence[Token]) -> list[dict[str, Any]]:
        return [{"text": token.text, "start": token.start, "end": token.end} for token in tokens]

    return {
        "links": alignment.pharaoh(),
        "source_words": words(alignment.source_words),
        "target_words": words(alignment.target_words),
        **alignment.setting._asdict(),
    }


def to_npz(report: AttentionReport) -> bytes:
    """Arrays that numpy reads without pickle; docs/attention.md lists their names and shapes."""
    arrays: dict[str, NDArray[Any]] = {maps.kind: maps.weights for maps in report.maps}
    arrays |= {f"norms_{maps.kind}": maps.weights for maps in report.norms or ()}
    for name, sequence in (("source", report.source), ("target", report.target)):
        if sequence is not None:
            tokens = sequence.tokens
            arrays[f"{name}_tokens"] = np.array([token.text for token in tokens], dtype=np.str_)
            arrays[f"{name}_ids"] = np.array([_or_none(token.id) for token in tokens], dtype=np.int64)
            arrays[f"{name}_spans"] = np.array(
                [(_or_none(token.text_index), _or_none(token.start), _or_none(token.end)) for token in tokens],
                dtype=np.int64,
            ).reshape(-1, 3)
    if report.alignment is not None:
        arrays["links"] = np.array(sorted(report.alignment.links), dtype=np.int64).reshape(-1, 2)
    metadata = describe(report) | {"maps": {maps.kind: describe_maps(maps) for maps in report.maps}}
    arrays["metadata"] = np.array(orjson.dumps(metadata).decode())
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _or_none(number: int | None) -> int:
    """What an array of numbers has in place of nothing."""
    return -1 if number is None else number
