"""What the embedding engine asks of a runtime: one verb. Shape letters: B batch, S source, E model width."""

from __future__ import annotations

from typing import Protocol

from service.engine.core.arrays import Floats, Ids


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
