"""What the decoding engine asks of a runtime: tables of cache rows, and one verb that advances some of them.

Shape letters: B rows of a call, T new tokens of each, S source, R of the new tokens to read after, V vocabulary,
N candidates.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from service.engine.core.arrays import Candidates, Floats, Ids


class Advanced(NamedTuple):
    """The model's output after each token read: its best N tokens, and where asked all logits (R,V)."""

    candidates: Candidates
    logits: Floats | None


class SavedRow(Protocol):
    """The first positions of a row, kept outside of any table; immutable, so that threads may share it."""

    @property
    def length(self) -> int:
        """How many positions it holds."""
        ...


class Table(Protocol):
    """The key-value caches of sequences that advance together, in slots of `beam_size` adjacent rows.

    Slot i has the rows i * beam_size to (i + 1) * beam_size - 1. For a model that reads a source, each slot also has
    one memory: the keys and values of cross-attention, which its rows share. A table is used by one thread at a time.
    """

    def encode(self, input_ids: Ids, lengths: Ids, slots: Sequence[int]) -> None:
        """Encode the sources `input_ids` (B,S) of `lengths` (B), and make source b the memory of slots[b]."""
        ...

    def advance(
        self,
        first_row: int,
        input_ids: Ids,
        write_indices: Ids,
        read_indices: Ids,
        num_candidates: int,
        wants_logits: bool,
    ) -> Advanced:
        """Write `input_ids` (B,T) to the B rows from `first_row` on, each from its position write_indices[b] (B) on.

        The rows are those of whole slots. Outputs are given for the tokens `read_indices` (R), which are counted row
        after row: b * T + t. A row with fewer than T new tokens is padded on the right, and its padding is
        overwritten by its next call. write_indices[b] + T must not exceed the model's `max_total_tokens`, padding or
        not. The result may be overwritten by the next call.
        """
        ...

    def advance_greedily(
        self, input_ids: Ids, write_indices: Ids, num_steps: int, end_ids: Collection[int]
    ) -> Sequence[Candidates]:
        """Advance the first B rows by one token, and then each by its own likeliest, in up to `num_steps` steps.

        `input_ids` (B,1) and `write_indices` (B) are those of the first step; the result has the one candidate of each
        row after each step. Where a step's choices are seen at no cost, the steps end with the first that has one of
        `end_ids`; elsewhere they all run. write_indices[b] + num_steps must not exceed the model's `max_total_tokens`.
        """
        ...

    def reserve(self, num_rows: int, length: int) -> None:
        """Allocate `num_rows` rows of `length` positions in one step instead of growing to them."""
        ...

    def copy_rows(self, copies: Sequence[tuple[int, int]], length: int) -> None:
        """For each (source row, destination row) of one slot: copy the first `length` positions."""
        ...

    def take_row(self, other: Table, source: int, destination: int, length: int) -> None:
        """Copy the first `length` positions of row `source` of `other`, which may be this table, to `destination`."""
        ...

    def take_slot(self, other: Table, source: int, destination: int, length: int) -> None:
        """Copy the slot `source` of `other`, which may be this table, to `destination`: memory and `length` positions.

        Where the slots of `other` have one row and these have more, each of them becomes a copy of it.
        """
        ...

    def save_row(self, row: int, length: int) -> SavedRow:
        """A copy of the first `length` positions of `row`."""
        ...

    def load_row(self, row: int, saved: SavedRow, length: int) -> None:
        """Copy the first `length` positions of `saved` to `row`."""
        ...

    def trim(self, num_rows: int, length: int) -> None:
        """Free memory beyond the first `num_rows` rows and `length` positions, where nothing is in use."""
        ...

    def release(self) -> None:
        """Free all memory of a table that is empty and not used any more."""
        ...


class Backend(Protocol):
    """A loaded model. Several threads may use it at once, each with tables of its own."""

    eos_ids: tuple[int, ...]
    suppressed_ids: tuple[int, ...]
    """Tokens that are never chosen. Candidates leave them out; logits have them."""
    pad_id: int
    vocab_size: int
    num_candidates: int
    """The most candidates that a call gives for each token read."""
    max_total_tokens: int
    """Positions of the cache that one row may have."""
    max_source_tokens: int
    """The longest source; 0 for a model that reads none."""
    bytes_per_position: int
    """Of one position of one row of the cache."""
    bytes_per_source_token: int
    """Of one token of a source in its memory; 0 for a model that reads none."""

    def new_table(self, max_rows: int, beam_size: int = 1) -> Table:
        """An empty table; memory is allocated as rows and capacity are needed."""
        ...
