"""What the engine asks of a runtime: a table of cache rows, and four verbs on it.

The engine hands over token ids and row numbers and gets candidates back; tensors, devices and files are the runtime's
own business. Shape letters: B batch, S source, T target, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class Candidates(NamedTuple):
    """The likeliest next tokens of each row, best first: ids (B,N) and log-probabilities (B,N).

    N is 1 for a beam of one, else twice the beam size, because each beam may end once.
    """

    ids: Ids
    log_probs: Floats


class RowTable(Protocol):
    """The caches of sequences that advance together.

    Each sequence is a slot of `beam_size` neighbouring rows, slot i being the rows i * beam_size to
    (i + 1) * beam_size - 1, which read one source. Active slots are the first ones, without gaps.

    A table is used by one thread at a time.
    """

    def encode(self, input_ids: Ids, lengths: Ids, slots: Sequence[int]) -> None:
        """Run the encoder over `input_ids` (B,S), `lengths` (B), and make source b that of slots[b]."""

    def step(self, input_ids: Ids, write_indices: Ids) -> Candidates:
        """Advance the first B rows by one token: `input_ids` (B) are written at `write_indices` (B) of their caches.

        The result may be overwritten by the next step.
        """

    def copy_cache(self, copies: Sequence[tuple[int, int]], length: int) -> None:
        """For each (source row, destination row) of one slot: copy the first `length` cached positions."""

    def move_slot(self, source: int, destination: int, length: int) -> None:
        """Make the slot `destination` what `source` is: its source text and `length` cached positions."""

    def take_slot(self, other: RowTable, source: int, destination: int, length: int) -> None:
        """Bring the slot `source` of `other` here: its source text and `length` cached positions."""

    def release(self) -> None:
        """Give back all memory: the table is empty, and not used any more."""


class Backend(Protocol):
    """A loaded model. Several threads may use it at once, each with tables of its own."""

    eos_id: int
    bos_id: int
    pad_id: int
    num_candidates: int
    max_source_tokens: int
    max_target_tokens: int

    def new_table(self, max_rows: int, beam_size: int) -> RowTable:
        """An empty table; its memory is taken as rows and capacity are needed."""
