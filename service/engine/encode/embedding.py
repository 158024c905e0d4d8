"""Embedding: what goes into the engine and what comes out, as plain immutable values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """One sequence to embed: token ids with their special tokens already in place.

    `wants_tokens` asks for a vector of each token instead of one for all. `deadline` is a point on
    `time.monotonic()`'s clock, in seconds; None waits for ever.
    """

    input_ids: tuple[int, ...]
    wants_tokens: bool = False
    deadline: float | None = None
    token_type_ids: tuple[int, ...] | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """The vectors of one request, not normalised, and what they cost.

    `values` has the shape (E,), pooled, or (S, E) where the request wants tokens.
    """

    values: NDArray[np.float32]
    queue_seconds: float
    inference_seconds: float
    num_input_tokens: int
