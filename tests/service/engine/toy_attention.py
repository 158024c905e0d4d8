"""A model that shows as its only map what it was asked, so that a mixed-up answer is seen."""

from __future__ import annotations

import numpy as np

from service.engine.encode.attention import AttentionRequest, Maps
from tests.service.engine.gate import Gate


def values_of(request: AttentionRequest) -> list[list[list[float]]]:
    """(1,1,S), the only map of a request: its source, or its target where it has no source."""
    return [[[float(token) for token in request.source_ids or request.target_ids or ()]]]


class ToyAttention(Gate):
    """Takes sources of up to 10 tokens out of 50, and targets of up to 8."""

    vocab_size, num_token_types, max_source_tokens, max_target_tokens = 50, 2, 10, 8

    def __init__(self, reads_source: bool = True, reads_target: bool = True) -> None:
        super().__init__()
        self.reads_source, self.reads_target = reads_source, reads_target

    def maps(self, request: AttentionRequest) -> tuple[Maps, Maps | None]:
        self.begin_step()
        values = np.array(values_of(request), np.float32)
        return {"encoder": {0: values}}, {"encoder": {0: 2 * values}} if request.wants_norms else None
