"""The decoding loop: admit what fits, advance everything by one token, answer what is finished, and again."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from itertools import pairwise

import numpy as np

from service.engine.backend import Backend
from service.engine.batch import Batch
from service.engine.errors import DeadlineError
from service.engine.observer import Observer
from service.engine.sequence import Sequence
from service.engine.waiting import EngineLimits, Ticket, WaitingLine


class Loop:
    """One thread's work. Sequences of like length share a table, because a table's cost follows its capacity."""

    def __init__(
        self,
        index: int,
        backend: Backend,
        line: WaitingLine,
        limits: EngineLimits,
        capacities: Seq[int],
        observer: Observer,
    ) -> None:
        self._index, self._backend, self._line = index, backend, line
        self._limits, self._observer = limits, observer
        self._batches = [
            Batch(backend.new_table(limits.max_rows), limits.max_rows, capacity) for capacity in capacities
        ]
        self.active_rows = 0
        self.num_steps = 0
        self.num_generated_tokens = 0
        self.num_source_tokens = 0
        self.num_padded_tokens = 0

    def run(self) -> None:
        """Work until the line says stop and everything admitted is answered."""
        while True:
            tickets = self._line.take(self._index, self.active_rows)
            if tickets is None:
                return
            self._admit(tickets)
            self._drop_abandoned()
            for batch in self._batches:
                batch.compact()
                if batch.sequences:
                    self._advance(batch)
            for batch, larger in pairwise(self._batches):
                self._move_outgrown(batch, larger)

    def sequences(self) -> list[Sequence]:
        return [sequence for batch in self._batches for sequence in batch.sequences]

    def _admit(self, tickets: Seq[Ticket]) -> None:
        """Encode newcomers together, each in the table for its length."""
        now = time.monotonic()
        sequences = []
        for ticket in tickets:
            if ticket.is_late(now):
                self._fail_late(ticket, "before it was begun")
            elif not ticket.is_settled:
                self._observer.on_queue(now - ticket.submitted)
                sequences.append(Sequence(ticket, self._backend.bos_id, self._backend.eos_id))
        sequences.sort(key=lambda sequence: sequence.num_source_tokens)
        start = 0
        for batch in self._batches:
            stop = start
            while stop < len(sequences) and sequences[stop].num_source_tokens <= batch.capacity:
                stop += 1
            for group in cut_batches(sequences[start:stop], self._limits.max_batch_tokens):
                self._encode(batch, group)
            start = stop
        if sequences:
            self._observer.on_rows(self.active_rows, self._limits.max_rows)

    def _encode(self, batch: Batch, group: Seq[Sequence]) -> None:
        lengths = np.array([sequence.num_source_tokens for sequence in group], dtype=np.int64)
        input_ids = np.full((len(group), int(lengths.max())), self._backend.pad_id, dtype=np.int64)
        for ids, sequence in zip(input_ids, group, strict=True):
            ids[: sequence.num_source_tokens] = sequence.ticket.request.input_ids
            sequence.rows = batch.reserve(sequence, sequence.search.num_rows)
            self.active_rows += len(sequence.rows)
        batch.table.encode(input_ids, lengths, [sequence.rows for sequence in group])
        num_tokens = int(lengths.sum())
        self.num_source_tokens += num_tokens
        self.num_padded_tokens += input_ids.size - num_tokens
        self._observer.on_encode(len(group), num_tokens, input_ids.size - num_tokens)

    def _drop_abandoned(self) -> None:
        """Free the rows of callers that left, and of those whose deadline has passed."""
        now = time.monotonic()
        for batch in self._batches:
            gone = []
            for sequence in batch.sequences:
                ticket = sequence.ticket
                if ticket.is_settled:
                    gone.append(sequence)
                elif ticket.is_late(now):
                    self._fail_late(ticket, f"after {sequence.position} tokens")
                    gone.append(sequence)
            self._release(batch, gone)

    def _advance(self, batch: Batch) -> None:
        num_rows = batch.num_rows
        finished = batch.step()
        self.num_steps += 1
        self.num_generated_tokens += num_rows
        self._observer.on_step(num_rows, num_rows, 0)
        self._release(batch, finished)
        for sequence in finished:
            sequence.ticket.answer(sequence.result())

    def _release(self, batch: Batch, sequences: Seq[Sequence]) -> None:
        if not sequences:
            return
        self.active_rows -= sum(len(sequence.rows) for sequence in sequences)
        batch.remove(sequences)
        self._observer.on_rows(self.active_rows, self._limits.max_rows)

    def _move_outgrown(self, batch: Batch, larger: Batch) -> None:
        for sequence in batch.outgrown():
            old_rows = sequence.rows
            sequence.rows = larger.reserve(sequence, len(old_rows))
            larger.table.take_rows(batch.table, list(zip(old_rows, sequence.rows, strict=True)), sequence.position)
            batch.remove([sequence])

    @staticmethod
    def _fail_late(ticket: Ticket, when: str) -> None:
        seconds = time.monotonic() - ticket.submitted
        ticket.fail(DeadlineError(f"the deadline passed {when}, {seconds:.1f} s after the request came"))


def cut_batches(sequences: Seq[Sequence], max_tokens: int) -> list[list[Sequence]]:
    """Cut sequences, sorted by length, into encoder batches within `max_tokens`, padding (longest x count) included."""
    groups: list[list[Sequence]] = []
    for sequence in sequences:
        if not groups or sequence.num_source_tokens * (len(groups[-1]) + 1) > max_tokens:
            groups.append([])
        groups[-1].append(sequence)
    return groups
