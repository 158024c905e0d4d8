"""Run every graph of a bundle on given tokens, whatever the device, and keep all that it says about real tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.bundle import Bundle

Array = NDArray[Any]
Outputs = dict[str, list[Array]]
"""By name: "logits" (rows,V) of each step, "embeddings" (B,E), "token_embeddings" (tokens,E), "cross_key.0", ..."""

OpenGraph = Callable[[Path], Any]
"""Opens an ONNX file as a session."""

Ids = Sequence[Sequence[int]]


def run_graphs(bundle: Bundle, precision: str, open_graph: OpenGraph, sources: Ids, targets: Ids) -> dict[str, Outputs]:
    """Each graph of a precision, by name, on `sources`; a decoder is given `targets` token by token after them.

    For a decoder without an encoder the sources are prompts, which must be of one length.
    """
    if bundle.config.architecture == "encoder":
        return {"encoder": _embed(bundle, precision, open_graph, sources)}
    if bundle.config.architecture == "decoder":
        return {"decoder": _generate(bundle, precision, open_graph, sources, targets)}
    return _translate(bundle, precision, open_graph, sources, targets)


def run_attention(bundle: Bundle, open_graph: OpenGraph, sources: Ids, targets: Ids) -> Outputs:
    """The attention graph, text by text."""
    spec = bundle.manifest.attention
    assert spec is not None
    session, found = open_graph(bundle.path / spec.file), Outputs()
    for source, target in zip(sources, targets, strict=True):
        ids, lengths = _padded([source], bundle.config.pad_id)
        bos = bundle.config.bos_id
        feeds = {"input_ids": ids, "lengths": lengths, "target_ids": np.array([[bos, *target]], np.int64)}
        if bundle.config.architecture == "decoder":
            feeds["target_ids"] = ids
        for name, values in _run(session, _with_types(feeds)).items():
            found.setdefault(name, []).append(values.reshape(-1, values.shape[-1]))
    return found


def _embed(bundle: Bundle, precision: str, open_graph: OpenGraph, texts: Ids) -> Outputs:
    session = open_graph(bundle.graph_path(precision, "encoder"))
    ids, lengths = _padded(texts, bundle.config.pad_id)
    found = _run(session, _with_types({"input_ids": ids, "lengths": lengths}))
    return {"embeddings": [found["embeddings"]], "token_embeddings": [_real(found["token_embeddings"], lengths)]}


def _translate(bundle: Bundle, precision: str, open_graph: OpenGraph, sources: Ids, targets: Ids) -> dict[str, Outputs]:
    encoder = open_graph(bundle.graph_path(precision, "encoder"))
    decoder = open_graph(bundle.graph_path(precision, "decoder"))
    ids, lengths = _padded(sources, bundle.config.pad_id)
    cross = _run(encoder, {"input_ids": ids, "lengths": lengths})
    entering = [[bundle.config.bos_id, *target] for target in targets]
    columns, ends = _padded(entering, bundle.config.pad_id)
    caches = _empty_caches(bundle, precision, *columns.shape)
    logits = []
    for step in range(columns.shape[1]):
        feeds = {"source_lengths": lengths, **cross}
        outputs = _step(decoder, columns[:, step : step + 1], step, caches, feeds)
        logits.append(outputs["logits"][ends > step])
    return {
        "encoder": {name: [_real(values, lengths)] for name, values in cross.items()},
        "decoder": {"logits": logits},
    }


def _generate(bundle: Bundle, precision: str, open_graph: OpenGraph, prompts: Ids, targets: Ids) -> Outputs:
    session = open_graph(bundle.graph_path(precision, "decoder"))
    ids = np.array(prompts, np.int64)
    columns, ends = _padded(targets, bundle.config.pad_id)
    caches = _empty_caches(bundle, precision, len(ids), ids.shape[1] + columns.shape[1])
    logits = [_step(session, ids, 0, caches, {})["logits"]]
    for step in range(columns.shape[1]):
        outputs = _step(session, columns[:, step : step + 1], ids.shape[1] + step, caches, {})
        logits.append(outputs["logits"][ends > step])
    return {"logits": logits}


def _step(session: Any, ids: Array, position: int, caches: dict[str, Array], feeds: Mapping[str, Array]) -> Any:
    """Advance every row from `position` on; `caches` become what the graph leaves in them."""
    num_rows, num_new = ids.shape
    inputs = {
        "input_ids": ids,
        "write_indices": np.full(num_rows, position, np.int64),
        "read_indices": np.arange(1, num_rows + 1, dtype=np.int64) * num_new - 1,
        "num_candidates": np.array([1], np.int64),
    }
    outputs = _run(session, {**inputs, **caches, **feeds})
    for name in caches:
        caches[name] = outputs[f"new_{name}"]
    return outputs


def _empty_caches(bundle: Bundle, precision: str, num_rows: int, length: int) -> dict[str, Array]:
    capacity = -(-length // 8) * 8
    return {
        spec.name: np.zeros((num_rows, capacity, bundle.config.cache_width), spec.dtype)
        for spec in bundle.graph(precision, "decoder").inputs
        if spec.name.startswith(("key_cache.", "value_cache."))
    }


def _run(session: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
    wanted = {argument.name for argument in session.get_inputs()}
    names = [argument.name for argument in session.get_outputs()]
    found = session.run(names, {name: np.ascontiguousarray(array) for name, array in feeds.items() if name in wanted})
    return dict(zip(names, found, strict=True))


def _with_types(feeds: dict[str, Array]) -> dict[str, Array]:
    return {**feeds, "token_type_ids": np.zeros_like(feeds["input_ids"])}


def _padded(rows: Ids, pad_id: int) -> tuple[Array, Array]:
    lengths = np.array([len(row) for row in rows], np.int64)
    ids = np.full((len(rows), lengths.max()), pad_id, np.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
    return ids, lengths


def _real(values: Array, lengths: Array) -> Array:
    """(B,S,E) -> (tokens,E), without padding."""
    tokens: Array = values[np.arange(values.shape[1]) < lengths[:, None]]
    return tokens
