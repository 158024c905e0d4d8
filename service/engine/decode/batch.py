"""The rows of one table: first slots that decode, then rows in prefill, without gaps."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Seq
from typing import NamedTuple

import numpy as np

from service.engine.core.arrays import Ids
from service.engine.decode.backend import Advanced, Table
from service.engine.decode.sequence import ChosenSequence, Outputs, Sequence


class Call(NamedTuple):
    """One call into the runtime: a decode step of a batch, or a chunk of prefill.

    `sequences` are those whose next token it gives: none where a chunk is not the last of its prompt. `scored` is the
    sequence whose prompt is scored by it, from the position `start` on. With `num_steps` > 1 every sequence takes its
    likeliest token so many times, or fewer; 0 is for prefill.
    """

    batch: Batch
    sequences: Seq[Sequence]
    first_row: int
    input_ids: Ids
    write_indices: Ids
    read_indices: Ids
    num_candidates: int
    wants_logits: bool
    scored: ChosenSequence | None = None
    start: int = 0
    num_steps: int = 0
    end_ids: Collection[int] = ()

    def run(self) -> list[Outputs]:
        """The model's output after each token of `read_indices`, for each step."""
        if self.num_steps > 1:
            steps = self.batch.table.advance_greedily(self.input_ids, self.write_indices, self.num_steps, self.end_ids)
            return [Outputs.of(Advanced(candidates, None)) for candidates in steps]
        advanced = self.batch.table.advance(
            self.first_row,
            self.input_ids,
            self.write_indices,
            self.read_indices,
            self.num_candidates,
            self.wants_logits,
        )
        return [Outputs.of(advanced)]


class Batch:
    """Sequences of one beam size and of like length, up to `capacity` positions, which advance together.

    Any adjacent rows can run in one call, so a prompt is prefilled in the row in which it will decode. Prefill takes
    place in batches of beam size 1 only.
    """

    def __init__(self, table: Table, max_rows: int, beam_size: int, capacity: int, pad_id: int) -> None:
        self.table = table
        self.beam_size = beam_size
        self.capacity = capacity
        self._pad_id = pad_id
        self._slots: list[Sequence | None] = []
        self._reading: list[Sequence] = []
        self._num_gaps = 0
        self._next_slot = 0  # where the next piece of a step begins
        self._needs: tuple[int, bool] | None = None  # candidates and logits of a step, while its members stay
        self._tokens: Ids = np.zeros((max_rows, 1), dtype=np.int64)
        self._positions: Ids = np.zeros(max_rows, dtype=np.int64)
        self._reads: Ids = np.arange(max_rows, dtype=np.int64)  # every row of a step has one token

    @property
    def decoding(self) -> list[Sequence]:
        """The sequences that a step advances."""
        return [sequence for sequence in self._slots if sequence is not None]

    @property
    def num_rows(self) -> int:
        """The rows that a step runs over, gaps included."""
        return len(self._slots) * self.beam_size

    @property
    def is_empty(self) -> bool:
        return len(self._slots) == self._num_gaps and not self._reading

    # Membership

    def add(self, sequence: Sequence) -> int:
        """Give a sequence a slot to decode in, the first gap or a new one; returns the slot."""
        if self._num_gaps:
            slot = self._slots.index(None)
            self._num_gaps -= 1
        else:
            slot = len(self._slots)
            for reading in reversed(self._reading):
                self._move(reading, reading.first_row + 1)
            self._slots.append(None)
        self._slots[slot] = sequence
        self._place(sequence, slot)
        return slot

    def begin(self, sequence: Sequence) -> int:
        """Give a sequence a row for its prefill, the next one after those in prefill now; returns the row."""
        row = len(self._slots) + len(self._reading)
        self.table.reserve(row + 1, sequence.num_prompt_tokens)
        self._reading.append(sequence)
        self._place(sequence, row)
        return row

    def _place(self, sequence: Sequence, slot: int) -> None:
        sequence.batch, sequence.first_row = self, slot * self.beam_size
        self._needs = None

    def remove(self, sequences: Collection[Sequence]) -> None:
        """Remove finished or cancelled sequences; the others of this batch keep their rows."""
        for sequence in sequences:
            slot = sequence.first_row // self.beam_size
            if slot < len(self._slots) and self._slots[slot] is sequence:
                self._slots[slot] = None
                self._num_gaps += 1
            else:
                self._reading.remove(sequence)
        self._needs = None

    def release(self, sequence: Sequence) -> None:
        """Take out a sequence whose rows nobody needs any more, and give memory back with the last one."""
        self.remove([sequence])
        if self.is_empty:  # perhaps for long: nothing compacts it before the next request
            self.table.trim(0, 0)

    def compact(self) -> None:
        """Close the gaps by moving the last slots into them, and trim the table to what is in use."""
        slots = self._slots
        if self._num_gaps:
            for gap in [slot for slot, sequence in enumerate(slots) if sequence is None]:
                while slots and slots[-1] is None:
                    slots.pop()
                if gap >= len(slots):
                    break
                last = slots.pop()
                assert last is not None
                self._move(last, gap)
                slots[gap] = last
            self._num_gaps = 0
            for row, reading in enumerate(self._reading, start=len(slots)):
                self._move(reading, row)
        if self._needs is None:  # the members have changed
            lengths = [sequence.position + 1 for sequence in self.decoding]
            lengths += [sequence.num_prompt_tokens for sequence in self._reading]
            self.table.trim(len(lengths) * self.beam_size, max(lengths, default=0))

    def _move(self, sequence: Sequence, slot: int) -> None:
        source = sequence.first_row // self.beam_size
        if source != slot:
            self.table.take_slot(self.table, source, slot, sequence.position)
            sequence.first_row = slot * self.beam_size

    def hand_over(self, sequence: Sequence, other: Batch) -> None:
        """Move a sequence to another batch, whose capacity is larger, or whose slots are as wide as its beam."""
        source = sequence.first_row // self.beam_size
        self.remove([sequence])
        slot = other.add(sequence)
        other.table.take_slot(self.table, source, slot, sequence.position)

    # Calls

    def read(self, sequences: Seq[Sequence], num_new: int) -> Call:
        """Prefill the next `num_new` tokens, or as many as are left, of `sequences`: all that are in prefill."""
        first = self._reading[0].first_row
        input_ids: Ids = np.full((len(sequences), num_new), self._pad_id, dtype=np.int64)
        positions: Ids = np.zeros(len(sequences), dtype=np.int64)
        counts: Ids = np.zeros(len(sequences), dtype=np.int64)
        for sequence in sequences:
            place = sequence.first_row - first
            tokens = sequence.request.prompt_ids[sequence.position : sequence.position + num_new]
            input_ids[place, : len(tokens)] = tokens
            positions[place], counts[place] = sequence.position, len(tokens)
            sequence.position += len(tokens)
        return Call(
            self,
            self._finish_reading(sequences),
            first,
            input_ids,
            positions,
            np.arange(len(sequences)) * num_new + counts - 1,
            max(sequence.num_candidates for sequence in sequences),
            any(sequence.needs_logits for sequence in sequences),
        )

    def read_scored(self, sequence: ChosenSequence, num_new: int) -> Call:
        """Prefill the next `num_new` tokens of the one sequence in prefill, with the outputs after each of them."""
        start = sequence.position
        sequence.position += num_new
        return Call(
            self,
            self._finish_reading([sequence]),
            sequence.first_row,
            np.array([sequence.request.prompt_ids[start : start + num_new]], dtype=np.int64),
            np.array([start], dtype=np.int64),
            np.arange(num_new, dtype=np.int64),
            sequence.num_candidates,
            True,
            sequence,
            start,
        )

    def _finish_reading(self, sequences: Seq[Sequence]) -> Seq[Sequence]:
        """The sequences, if this chunk is the last of their prompts: they decode from now on. Else none."""
        if sequences[0].position < sequences[0].num_prompt_tokens:
            return ()
        self._slots += self._reading
        self._reading, self._needs = [], None
        return sequences

    def step(self, most: int = 1, end_ids: Collection[int] = (), max_rows: int | None = None) -> Call:
        """Advance every row by one token, or by up to `most` where all choose greedily.

        With `max_rows`, at most so many rows, which follow on those of the last call. There must be no gaps. Sequences
        depend on none of the others, so it does not matter which of them are ahead.
        """
        sequences, first_slot = self.decoding, 0
        if max_rows is not None and max_rows < self.num_rows:
            first_slot = self._next_slot if self._next_slot < len(sequences) else 0
            sequences = sequences[first_slot : first_slot + max(1, max_rows // self.beam_size)]
            self._next_slot = first_slot + len(sequences)
        num_rows, first_row = len(sequences) * self.beam_size, first_slot * self.beam_size
        # One assignment for all rows: element by element, numpy would take longer than the choice of a token.
        if self.beam_size == 1:
            tokens = [sequence.tokens[0] for sequence in sequences]
            positions = [sequence.position for sequence in sequences]
        else:
            tokens, positions = [0] * num_rows, []
            for sequence in sequences:
                first = sequence.first_row - first_row
                for row, token in zip(sequence.rows, sequence.tokens, strict=True):
                    tokens[first + row] = token
                positions += [sequence.position] * self.beam_size
        if self._needs is None:
            self._needs = (
                max(sequence.num_candidates for sequence in self.decoding),
                any(sequence.needs_logits for sequence in self.decoding),
            )
        num_steps = 1
        if most > 1:
            room = self.capacity - max(positions)
            num_steps = min(most, room, *(sequence.num_greedy_steps for sequence in sequences))
        for sequence in sequences:
            sequence.position += 1
        input_ids, write_indices = self._tokens[:num_rows], self._positions[:num_rows]
        input_ids[:, 0] = tokens
        write_indices[:] = positions
        return Call(
            self,
            sequences,
            first_row,
            input_ids,
            write_indices,
            self._reads[:num_rows],
            *self._needs,
            num_steps=num_steps,
            end_ids=end_ids,
        )
