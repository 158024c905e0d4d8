"""Which inputs run together, and the arrays that they run as. Pure: the waiting line and the threads are elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.engine.backend import Ids
from service.engine.embedding import EmbeddingRequest


def choose_batch(lengths: Sequence[int], max_tokens: int, overhead_tokens: int) -> list[int]:
    """The next batch, as indices into `lengths`, those of the inputs that wait in the order of their coming.

    It always holds the oldest, index 0, so nobody is passed over for ever, and then the inputs of like length that make
    it most worth its cost: real tokens for each token computed, where a batch computes longest x count tokens and costs
    as much as `overhead_tokens` more, however small it is. Where the overhead is small only inputs of nearly one length
    run together; where it is large, as on a GPU, whatever waits. Of equal lengths the older goes first.

    Longest x count is at most `max_tokens`, unless the oldest is alone longer than that.
    """
    oldest = lengths[0]
    rest = sorted(range(1, len(lengths)), key=lengths.__getitem__)  # stable, so by age among equals
    longer = [index for index in rest if lengths[index] >= oldest]
    shorter = sorted((index for index in rest if lengths[index] < oldest), key=lambda index: -lengths[index])
    chosen, best_count = [0], 1
    longest = real = oldest
    best_real, best_cost = real, overhead_tokens + longest
    num_longer = num_shorter = 0
    while True:
        count = len(chosen) + 1
        options = []  # each as (index, real tokens, longest)
        if num_longer < len(longer):
            length = lengths[longer[num_longer]]
            options.append((longer[num_longer], real + length, length))
        if num_shorter < len(shorter):
            options.append((shorter[num_shorter], real + lengths[shorter[num_shorter]], longest))
        options = [option for option in options if option[2] * count <= max_tokens]
        if not options:
            return sorted(chosen[:best_count])
        index, real, longest = max(options, key=lambda option: option[1] / (overhead_tokens + option[2] * count))
        num_longer += lengths[index] >= oldest
        num_shorter += lengths[index] < oldest
        chosen.append(index)
        cost = overhead_tokens + longest * count
        if real * best_cost >= best_real * cost:
            best_count, best_real, best_cost = count, real, cost


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
    lengths = np.array([request.num_tokens for request in requests], dtype=np.int64)
    shape = len(requests), int(lengths.max())
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    for row, request in zip(input_ids, requests, strict=True):
        row[: request.num_tokens] = request.input_ids
    if all(request.token_type_ids is None for request in requests):
        return BatchArrays(input_ids, lengths, None)
    token_type_ids = np.zeros(shape, dtype=np.int64)
    for row, request in zip(token_type_ids, requests, strict=True):
        if request.token_type_ids is not None:
            row[: request.num_tokens] = request.token_type_ids
    return BatchArrays(input_ids, lengths, token_type_ids)
