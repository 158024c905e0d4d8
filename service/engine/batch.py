"""The sequences of one row table: who owns which slot, kept without gaps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from service.engine.backend import Ids, RowTable
from service.engine.sequence import Sequence


class Batch:
    """Sequences of one beam size that advance together. Newcomers fill the gaps of finished ones, or `compact` does."""

    def __init__(self, table: RowTable, max_rows: int, beam_size: int, capacity: int) -> None:
        self.table = table
        self.beam_size = beam_size
        self.capacity = capacity
        self.sequences: list[Sequence] = []
        self._owners: list[Sequence | None] = []
        self._tokens: Ids = np.zeros(max_rows, dtype=np.int64)
        self._positions: Ids = np.zeros(max_rows, dtype=np.int64)

    @property
    def num_rows(self) -> int:
        """Rows that a step runs over, gaps included."""
        return len(self._owners) * self.beam_size

    def add(self, sequence: Sequence) -> int:
        """Give a newcomer a slot, a gap first; returns the slot."""
        try:
            slot = self._owners.index(None)
        except ValueError:
            slot = len(self._owners)
            self._owners.append(None)
        self._owners[slot] = sequence
        self.sequences.append(sequence)
        sequence.place(slot * self.beam_size)
        return slot

    def remove(self, sequences: Iterable[Sequence]) -> None:
        gone = set(map(id, sequences))
        self.sequences = [sequence for sequence in self.sequences if id(sequence) not in gone]
        self._owners = [owner if owner is not None and id(owner) not in gone else None for owner in self._owners]

    def compact(self) -> None:
        """Close the gaps by moving the last sequences into them."""
        gaps = [slot for slot, owner in enumerate(self._owners) if owner is None]
        for gap in gaps:
            while self._owners and self._owners[-1] is None:
                self._owners.pop()
            last = len(self._owners) - 1
            if gap >= last:
                return
            owner = self._owners.pop()
            assert owner is not None
            self.table.move_slot(last, gap, owner.position)
            owner.place(gap * self.beam_size)
            self._owners[gap] = owner

    def step(self) -> list[Sequence]:
        """Advance every row by one token; returns the sequences that finished."""
        # Numbers go in and out of numpy all at once: one by one they cost more than the search.
        num_rows = self.num_rows
        tokens, positions = [0] * num_rows, [0] * num_rows
        for sequence in self.sequences:
            first = sequence.first_row
            for row, token in zip(sequence.rows, sequence.tokens, strict=True):
                tokens[first + row] = token
                positions[first + row] = sequence.position
        self._tokens[:num_rows] = tokens
        self._positions[:num_rows] = positions
        candidates = self.table.step(self._tokens[:num_rows], self._positions[:num_rows])
        ids, log_probs = candidates.ids.tolist(), candidates.log_probs.tolist()
        finished = [sequence for sequence in self.sequences if not sequence.advance(ids, log_probs)]
        for sequence in self.sequences:
            if sequence.copies:
                self.table.copy_cache(sequence.copies, sequence.position)
                sequence.copies = []
        return finished

    def outgrown(self) -> list[Sequence]:
        """The sequences whose next token has no place within this table's capacity."""
        return [sequence for sequence in self.sequences if sequence.position >= self.capacity]

    def move(self, sequence: Sequence, larger: Batch) -> None:
        """Hand a sequence over to the table for longer ones."""
        slot = self._owners.index(sequence)
        larger.table.take_slot(self.table, slot, larger.add(sequence), sequence.position)
        self.remove([sequence])
