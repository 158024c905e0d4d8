"""The arrays that a batch of embedding requests runs as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.engine.core.arrays import Ids, pad
from service.engine.encode.embedding import EmbeddingRequest


class BatchArrays(NamedTuple):
    """A batch as the backend takes it: (B,S) ids with padding on the right, (B) lengths, (B,S) token types or None."""

    input_ids: Ids
    lengths: Ids
    token_type_ids: Ids | None

    @property
    def num_tokens(self) -> int:
        """Real tokens."""
        return int(self.lengths.sum())

    @property
    def num_padded_tokens(self) -> int:
        """Tokens that are only padding."""
        return self.input_ids.size - self.num_tokens


def build_arrays(requests: Sequence[EmbeddingRequest], pad_id: int) -> BatchArrays:
    """The arrays of a batch; a request without token types has type 0 where another one brings some."""
    input_ids, lengths = pad([request.input_ids for request in requests], pad_id)
    if all(request.token_type_ids is None for request in requests):
        return BatchArrays(input_ids, lengths, None)
    token_type_ids = np.zeros_like(input_ids)
    for row, request in zip(token_type_ids, requests, strict=True):
        if request.token_type_ids is not None:
            row[: request.num_tokens] = request.token_type_ids
    return BatchArrays(input_ids, lengths, token_type_ids)
