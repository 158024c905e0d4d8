"""Embedding: requests, results, and what the engine asks of a runtime. Letters: B batch, S source, E model width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.engine.core.arrays import Floats, Ids


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """One sequence to embed: token ids with their special tokens already in place.

    `wants_tokens` asks for a vector of each token instead of one for all. `deadline` is on
    `time.monotonic()`'s clock, in seconds; None waits without limit.
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
    """The vectors of one request, not normalised, and the time and tokens it took.

    `values` has the shape (E,), pooled, or (S, E) with `wants_tokens`.
    """

    values: NDArray[np.float32]
    queue_seconds: float
    inference_seconds: float
    num_input_tokens: int


class EncoderBackend(Protocol):
    """A loaded encoder. Several threads may use it at once."""

    pad_id: int
    vocab_size: int
    num_token_types: int
    """0 for a model that takes no token types."""
    max_input_tokens: int
    width: int

    def encode(self, input_ids: Ids, lengths: Ids, token_type_ids: Ids | None, wants_tokens: bool) -> Floats:
        """Embed `input_ids` (B,S), of which row b has `lengths[b]` tokens and then padding.

        `token_type_ids` has the shape of `input_ids`; None means type 0 everywhere. Returns the pooled vectors (B,E),
        or with `wants_tokens` those of the tokens (B,S,E), of which the ones of padding mean nothing. Neither is
        normalised. The array is the caller's own.
        """
