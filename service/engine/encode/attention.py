"""Attention maps: what goes into the engine and what comes out, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["encoder", "decoder", "cross"]
"""Self-attention of the encoder or the decoder, or attention from the decoder to the encoder's output."""

Maps = Mapping[Kind, Mapping[int, NDArray[np.float32]]]
"""By kind and layer, (H,Q,K): a row for each query, a column for each key, real tokens only."""


@dataclass(frozen=True, slots=True)
class AttentionRequest:
    """One input: token ids with their special tokens already in place.

    An encoder has `source_ids` alone. A decoder has `target_ids` alone, the prompt and its continuation. An
    encoder-decoder has both, and `target_ids` are what its decoder reads: the begin token, then the output without its
    end. `layers` are the layers wanted of each kind, None all; one that a kind does not have is left out.
    `token_type_ids` go with `source_ids`, None for zeros. `deadline` is on `time.monotonic()`'s clock, in seconds;
    None waits without limit.
    """

    source_ids: tuple[int, ...] | None = None
    target_ids: tuple[int, ...] | None = None
    token_type_ids: tuple[int, ...] | None = None
    layers: tuple[int, ...] | None = None
    wants_norms: bool = False
    deadline: float | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.source_ids or ()) + len(self.target_ids or ())


@dataclass(frozen=True, slots=True)
class AttentionResult:
    """The maps of one request, and the time and tokens it took. The rows of `maps` sum to one.

    `norms`, where requested, has the shapes of `maps`: each weight times the length of the value vector
    that it weighs, after the output projection (Kobayashi et al. 2020, https://aclanthology.org/2020.emnlp-main.574).
    """

    maps: Maps
    norms: Maps | None
    queue_seconds: float
    inference_seconds: float
    num_input_tokens: int
