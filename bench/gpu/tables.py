"""How the rows of each part are printed."""

from __future__ import annotations

from bench.report import Column, Table

_SPEED = (
    Column("tokens_per_second", "tokens/s", ".0f"),
    Column("milliseconds", "ms a step", ".3f"),
    Column("floor_share", "of the floor", ".0%"),
    Column("eager_milliseconds", "eager ms", ".3f"),
    Column("compiled_milliseconds", "compiled ms", ".3f"),
    Column("times_eager", "x eager", ".2f"),
    Column("times_compiled", "x compiled", ".2f"),
    Column("equal", "equal to eager", ".1%"),
)
_CTRANSLATE2 = (
    Column("ctranslate2_milliseconds", "CTranslate2 ms", ".3f"),
    Column("times_ctranslate2", "x CTranslate2", ".2f"),
    Column("equal_ctranslate2", "equal to CTranslate2", ".1%"),
)
_CASE = (Column("model", "model"), Column("precision", "precision"))

TABLES: dict[str, Table] = {
    "parity": Table(
        (
            Column("bundle", "bundle"),
            Column("precision", "precision"),
            Column("what", "what"),
            Column("largest_difference", "largest difference", ".2e"),
            Column("relative_error", "relative error", ".2e"),
            Column("equal_tokens", "equal tokens", ".2%"),
            Column("equal_sentences", "equal texts", ".1%"),
            Column("smallest_cosine", "smallest cosine", ".6f"),
            Column("verdict", "exporter's bounds"),
        )
    ),
    "placement": Table(
        (
            Column("bundle", "bundle"),
            Column("precision", "precision"),
            Column("graph", "graph"),
            Column("on_device", "on the device"),
            Column("copies", "copies"),
            Column("host", "shapes on the host"),
            Column("fell_back", "fell back"),
            Column("attention", "attention kernels"),
        )
    ),
    "translate": Table((*_CASE, Column("beam", "beam"), Column("batch", "batch"), *_SPEED, *_CTRANSLATE2)),
    "embed": Table((*_CASE, Column("batch", "batch"), *_SPEED)),
    "generate": Table((*_CASE, Column("batch", "streams"), *_SPEED)),
    "capacity": Table(
        (
            *_CASE,
            Column("rows", "rows"),
            Column("length", "real length"),
            Column("capacity", "capacity"),
            Column("milliseconds", "ms a step", ".3f"),
            Column("times_first", "x the first", ".2f"),
        )
    ),
    "http": Table(
        (
            Column("task", "task"),
            Column("precision", "precision"),
            Column("clients", "clients"),
            Column("texts_per_request", "texts a request"),
            Column("engine_texts_per_second", "engine texts/s", ".1f"),
            Column("http_texts_per_second", "HTTP texts/s", ".1f"),
            Column("kept", "kept", ".0%"),
        )
    ),
}

PARTS = tuple(TABLES)
"""In the order in which they are measured."""
