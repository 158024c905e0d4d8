"""Arrays that engines and runtimes exchange. Shape letters: B batch, S source, N candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class Candidates(NamedTuple):
    """The likeliest next tokens of each row, best first: ids (B,N) and log-probabilities (B,N)."""

    ids: Ids
    log_probs: Floats


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Ids, Ids]:
    """Token ids as a rectangle (B,S), padded on the right, and their lengths (B)."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    padded = np.full((len(rows), int(lengths.max())), pad_id, dtype=np.int64)
    for destination, row in zip(padded, rows, strict=True):
        destination[: len(row)] = row
    return padded, lengths
