"""One step of a bundle's runtime, without the engine: what the runtime binds and computes, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from export.bundle import Bundle
from service.runtime.decoder import OnnxDecoderBackend
from service.runtime.encoder import OnnxEncoderBackend


class StepShape(NamedTuple):
    """Rows that have `length` positions after the step; a decoder's cache has room for `capacity`, at least that."""

    num_rows: int
    length: int
    capacity: int


def open_step(bundle: Bundle, precision: str, device: str, shape: StepShape) -> Callable[[], object]:
    """A call that computes the last of `length` positions anew, or a whole batch of an encoder; it ends with it."""
    chance = np.random.default_rng(0)
    ids = chance.integers(1, bundle.config.vocab_size, (shape.num_rows, shape.length))
    if bundle.config.architecture == "encoder":
        return _embed(bundle, precision, device, ids)
    if bundle.config.architecture == "decoder":
        return _generate(bundle, precision, device, ids, shape.capacity)
    return _translate(bundle, precision, device, ids)


def _embed(bundle: Bundle, precision: str, device: str, ids: NDArray[np.int64]) -> Callable[[], object]:
    backend = OnnxEncoderBackend(bundle, precision, device)
    lengths = np.full(len(ids), ids.shape[1])
    return lambda: backend.encode(ids, lengths, None, wants_tokens=False)


def _generate(
    bundle: Bundle, precision: str, device: str, ids: NDArray[np.int64], capacity: int
) -> Callable[[], object]:
    num_rows, length = ids.shape
    table = OnnxDecoderBackend(bundle, precision, device).new_table(num_rows)
    table.reserve(num_rows, capacity)
    start, last = np.zeros(num_rows, np.int64), np.full(num_rows, length - 1)
    table.advance(0, ids, start, last, 1, wants_logits=False)
    entering = ids[:, -1:].copy()
    return lambda: table.advance(0, entering, last, start, 1, wants_logits=False)


def _translate(bundle: Bundle, precision: str, device: str, ids: NDArray[np.int64]) -> Callable[[], object]:
    num_rows, length = ids.shape
    table = OnnxDecoderBackend(bundle, precision, device).new_table(num_rows, 1)
    table.encode(ids, np.full(num_rows, length), range(num_rows))
    start, last = np.zeros(num_rows, np.int64), np.full(num_rows, length - 1)
    rows = np.arange(num_rows)
    table.advance(0, ids, start, rows * length + last, 1, wants_logits=False)
    entering = ids[:, -1:].copy()
    return lambda: table.advance(0, entering, last, rows, 1, wants_logits=False)
