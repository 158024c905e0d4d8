"""What the generation engine asks of a runtime: tables of cache rows, and one verb that advances some of them.

Shape letters: B rows of a call, T new tokens of each, R of them to read after, V vocabulary, N candidates.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from service.engine.backend import Candidates, Floats, Ids


class Advanced(NamedTuple):
    """What a model thinks comes after each token that is read: its best N tokens, and where asked all logits (R,V)."""

    candidates: Candidates
    logits: Floats | None


class SavedRow(Protocol):
    """The first positions of a row, kept outside of any table; never changed, so that threads may share it."""

    @property
    def length(self) -> int:
        """How many positions it holds."""
        ...


class GenerationTable(Protocol):
    """The caches of sequences that advance together, one row each. A table is used by one thread at a time."""

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

        What comes next is told of the tokens `read_indices` (R), which are counted row after row: b * T + t. A row with
        fewer than T new tokens is padded on the right, and its padding is overwritten by its next call.
        write_indices[b] + T must not exceed the model's `max_total_tokens`, padding or not. The result may be
        overwritten by the next call.
        """
        ...

    def reserve(self, num_rows: int, length: int) -> None:
        """Take room for `num_rows` rows of `length` positions at once, where it would else grow piece by piece."""
        ...

    def take_row(self, other: GenerationTable, source: int, destination: int, length: int) -> None:
        """Copy the first `length` positions of row `source` of `other`, which may be this table, to `destination`."""
        ...

    def save_row(self, row: int, length: int) -> SavedRow:
        """Keep the first `length` positions of `row`."""
        ...

    def load_row(self, row: int, saved: SavedRow, length: int) -> None:
        """Bring the first `length` positions of `saved` to `row`."""
        ...

    def trim(self, num_rows: int, length: int) -> None:
        """All that is still of use lies in the first `num_rows` rows and `length` positions."""
        ...

    def release(self) -> None:
        """Give back all memory: the table is empty, and not used any more."""
        ...


class GenerationBackend(Protocol):
    """A loaded decoder. Several threads may use it at once, each with tables of its own."""

    eos_ids: tuple[int, ...]
    pad_id: int
    vocab_size: int
    num_candidates: int
    max_total_tokens: int

    def new_table(self, max_rows: int) -> GenerationTable:
        """An empty table; its memory is taken as rows and capacity are needed."""
        ...
