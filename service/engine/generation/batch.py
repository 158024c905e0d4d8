"""The rows of one table: those that are decoded first, then those whose prompts are being read, without gaps."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Seq

import numpy as np

from service.engine.backend import Ids
from service.engine.generation.backend import GenerationTable
from service.engine.generation.sequence import Outputs, Row, Sequence, StreamedSequence


class Batch:
    """Sequences whose texts are of like length, up to `capacity` positions, and advance together.

    Any neighbouring rows can run in one call, so prompts are read where they will be decoded.
    """

    def __init__(self, table: GenerationTable, max_rows: int, capacity: int, pad_id: int) -> None:
        self.table = table
        self.capacity = capacity
        self._pad_id = pad_id
        self._decoding: list[Row | None] = []
        self._reading: list[Row] = []
        self._tokens: Ids = np.zeros((max_rows, 1), dtype=np.int64)
        self._positions: Ids = np.zeros(max_rows, dtype=np.int64)
        self._reads: Ids = np.arange(max_rows, dtype=np.int64)  # every row of a step has one token

    @property
    def decoding(self) -> list[Sequence]:
        """The sequences that a step advances."""
        return [row.sequence for row in self._decoding if row is not None and row.beam == 0]

    @property
    def num_rows(self) -> int:
        """The rows that a step runs over."""
        return len(self._decoding)

    @property
    def is_empty(self) -> bool:
        return not self._decoding and not self._reading

    def begin(self, sequence: Sequence) -> Row:
        """Give the prompt of a newcomer a row, the next one after those that are read now."""
        row = Row(sequence, 0, self.table, len(self._decoding) + len(self._reading))
        self.table.reserve(row.index + 1, sequence.num_prompt_tokens)
        self._reading.append(row)
        sequence.rows = [row]
        return row

    def add(self, sequence: Sequence, beam: int) -> Row:
        """Give a sequence one more row to be decoded, a gap first."""
        if None in self._decoding:
            index = self._decoding.index(None)
        else:
            index = len(self._decoding)
            for reading in reversed(self._reading):
                self._move(reading, reading.index + 1)
            self._decoding.append(None)
        row = self._decoding[index] = Row(sequence, beam, self.table, index)
        return row

    def read(self, sequences: Seq[Sequence], num_new: int, num_candidates: int, wants_logits: bool) -> Outputs:
        """Read the next `num_new` tokens of the prompts of `sequences`, or as many as there are: all that are begun."""
        first = self._reading[0].index
        shape = len(sequences), num_new
        input_ids: Ids = np.full(shape, self._pad_id, dtype=np.int64)
        positions: Ids = np.zeros(len(sequences), dtype=np.int64)
        counts: Ids = np.zeros(len(sequences), dtype=np.int64)
        for sequence in sequences:
            place = sequence.rows[0].index - first
            tokens = sequence.prompt.token_ids[sequence.position : sequence.position + num_new]
            input_ids[place, : len(tokens)] = tokens
            positions[place], counts[place] = sequence.position, len(tokens)
            sequence.position += len(tokens)
        lasts = np.arange(len(sequences)) * num_new + counts - 1
        return Outputs.of(self.table.advance(first, input_ids, positions, lasts, num_candidates, wants_logits))

    def read_scored(self, sequence: StreamedSequence, num_new: int) -> Outputs:
        """Read the next `num_new` tokens of the one prompt that is begun, with what the model expects after each."""
        start = sequence.position
        input_ids = np.array([sequence.prompt.token_ids[start : start + num_new]], dtype=np.int64)
        sequence.position += num_new
        advanced = self.table.advance(
            sequence.rows[0].index,
            input_ids,
            np.array([start], dtype=np.int64),
            np.arange(num_new, dtype=np.int64),
            sequence.num_candidates,
            wants_logits=True,
        )
        outputs = Outputs.of(advanced)
        sequence.score(start, outputs)
        return outputs.last()

    def finish_reading(self) -> None:
        """The prompts have been read to their ends: from now on their rows are decoded."""
        self._decoding += self._reading
        self._reading = []

    def step(self) -> Outputs:
        """Advance every row by one token."""
        longest = num_candidates = 0
        wants_logits = False
        num_rows = len(self._decoding)
        for index, row in enumerate(self._decoding):
            assert row is not None  # compact has closed the gaps
            sequence = row.sequence
            self._tokens[index, 0] = sequence.next_token(row.beam)
            self._positions[index] = sequence.position
            if row.beam == 0:
                longest = max(longest, sequence.position)
                num_candidates = max(num_candidates, sequence.num_candidates)
        for sequence in self.decoding:
            sequence.position += 1
            wants_logits = wants_logits or sequence.needs_logits
        tokens, positions, reads = self._tokens[:num_rows], self._positions[:num_rows], self._reads[:num_rows]
        return Outputs.of(self.table.advance(0, tokens, positions, reads, num_candidates, wants_logits))

    def remove(self, sequences: Collection[Sequence]) -> None:
        """Take out the rows of sequences that are finished or gone."""
        gone = set(map(id, sequences))
        self._decoding = [row if row is not None and id(row.sequence) not in gone else None for row in self._decoding]
        self._reading = [row for row in self._reading if id(row.sequence) not in gone]

    def compact(self) -> None:
        """Close the gaps by moving the last rows into them, and forget what no row needs any more."""
        rows = [row for row in self._decoding if row is not None]
        gaps = [index for index, row in enumerate(self._decoding[: len(rows)]) if row is None]
        stray = [row for row in rows if row.index >= len(rows)]
        for row, gap in zip(stray, gaps, strict=True):
            self._move(row, gap)
        self._decoding = [*sorted(rows, key=lambda row: row.index)]
        for place, reading in enumerate(self._reading, start=len(rows)):
            self._move(reading, place)
        lengths = [row.sequence.position for row in (*rows, *self._reading)]
        self.table.trim(len(lengths), max(lengths, default=0))

    def _move(self, row: Row, index: int) -> None:
        if row.index != index:
            if row.sequence.position:
                self.table.take_row(self.table, row.index, index, row.sequence.position)
            row.index = index

    def outgrown(self) -> list[Sequence]:
        """The sequences whose next token has no place within this table's capacity."""
        return [sequence for sequence in self.decoding if sequence.position >= self.capacity]

    def hand_over(self, sequence: Sequence, larger: Batch) -> None:
        """Give a sequence to the table for longer ones."""
        moved = []
        for row in sequence.rows:
            destination = larger.add(sequence, row.beam)
            destination.take(row, sequence.position)
            moved.append(destination)
        self.remove([sequence])
        sequence.rows = moved
