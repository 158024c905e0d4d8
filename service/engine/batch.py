"""The sequences of one row table: who owns which row, kept without gaps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from service.engine.backend import Ids, RowTable
from service.engine.sequence import Sequence


class Batch:
    """Sequences that advance together in one table. Gaps of finished ones are filled by newcomers or by `compact`."""

    def __init__(self, table: RowTable, max_rows: int, capacity: int) -> None:
        self.table = table
        self.capacity = capacity
        self.sequences: list[Sequence] = []
        self._owners: list[Sequence | None] = []
        self._tokens: Ids = np.zeros(max_rows, dtype=np.int64)
        self._positions: Ids = np.zeros(max_rows, dtype=np.int64)

    @property
    def num_rows(self) -> int:
        """Rows that a step runs over, gaps included."""
        return len(self._owners)

    def reserve(self, sequence: Sequence, count: int) -> list[int]:
        """Rows for a newcomer, gaps first."""
        rows = [row for row, owner in enumerate(self._owners) if owner is None][:count]
        while len(rows) < count:
            rows.append(len(self._owners))
            self._owners.append(None)
        for row in rows:
            self._owners[row] = sequence
        self.sequences.append(sequence)
        return rows

    def remove(self, sequences: Iterable[Sequence]) -> None:
        gone = set(map(id, sequences))
        self.sequences = [sequence for sequence in self.sequences if id(sequence) not in gone]
        self._owners = [owner if owner is not None and id(owner) not in gone else None for owner in self._owners]

    def compact(self) -> None:
        """Close the gaps by moving the last rows into them."""
        gaps = [row for row, owner in enumerate(self._owners) if owner is None]
        for gap in gaps:
            while self._owners and self._owners[-1] is None:
                self._owners.pop()
            last = len(self._owners) - 1
            if gap >= last:
                return
            owner = self._owners.pop()
            assert owner is not None
            self.table.move_row(last, gap, owner.position)
            owner.rows[owner.rows.index(last)] = gap
            self._owners[gap] = owner

    def step(self) -> list[Sequence]:
        """Advance every row by one token; returns the sequences that finished."""
        tokens, positions = self._tokens, self._positions
        for sequence in self.sequences:
            for row, token in zip(sequence.rows, sequence.tokens, strict=True):
                tokens[row] = token
                positions[row] = sequence.position
        candidates = self.table.step(tokens[: self.num_rows], positions[: self.num_rows])
        finished = [sequence for sequence in self.sequences if not sequence.advance(candidates)]
        for sequence in self.sequences:
            if sequence.copies:
                self.table.copy_cache(sequence.copies, sequence.position)
                sequence.copies = []
        return finished

    def outgrown(self) -> list[Sequence]:
        """The sequences whose next token has no place within this table's capacity."""
        return [sequence for sequence in self.sequences if sequence.position >= self.capacity]
