"""An encoder whose vectors follow from every token, its place and its type, so that a mixed-up row is seen."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from service.engine.core.arrays import Floats, Ids
from service.engine.encode.embedding import EmbeddingRequest
from tests.service.engine.gate import Gate

PAD, WIDTH, VOCABULARY, MAX_TOKENS = 0, 3, 100, 40


def vectors(request: EmbeddingRequest) -> Floats:
    """What the toy gives for one request alone: (E,) pooled, or (S,E)."""
    types = request.token_type_ids or (0,) * request.num_tokens
    rows = [(token, place, kind) for place, (token, kind) in enumerate(zip(request.input_ids, types, strict=True))]
    tokens = np.array(rows, np.float32)
    return tokens if request.wants_tokens else np.asarray(tokens.T @ np.arange(1, len(rows) + 1), np.float32)


class ToyEncoder(Gate):
    """`lengths_of_batches`, `kinds` (tokens or pooled) and `threads` list what each batch was and who ran it."""

    pad_id, width, vocab_size, max_input_tokens, num_token_types = PAD, WIDTH, VOCABULARY, MAX_TOKENS, 2

    def __init__(self, on_step: Callable[[int], None] = lambda _: None) -> None:
        super().__init__(on_step)
        self.lengths_of_batches: list[list[int]] = []
        self.kinds: list[bool] = []
        self.threads: list[str] = []
        self.most_at_once = 0
        self._at_once = 0

    def encode(self, input_ids: Ids, lengths: Ids, token_type_ids: Ids | None, wants_tokens: bool) -> Floats:
        self._begin([int(length) for length in lengths], wants_tokens)
        longest = input_ids.shape[1]
        assert longest == lengths.max()
        values = np.full((len(lengths), longest, WIDTH) if wants_tokens else (len(lengths), WIDTH), np.nan, np.float32)
        for row, length in enumerate(map(int, lengths)):
            assert (input_ids[row, length:] == PAD).all()
            types = None if token_type_ids is None else tuple(map(int, token_type_ids[row, :length]))
            request = EmbeddingRequest(tuple(map(int, input_ids[row, :length])), wants_tokens, token_type_ids=types)
            if wants_tokens:
                values[row, :length] = vectors(request)
            else:
                values[row] = vectors(request)
        with self._changed:
            self._at_once -= 1
        return values

    def _begin(self, lengths: list[int], wants_tokens: bool) -> None:
        with self._changed:
            self.lengths_of_batches.append(lengths)
            self.kinds.append(wants_tokens)
            self.threads.append(threading.current_thread().name)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        self.begin_step()
