"""The decoding loop: admit what fits, advance everything by one token, answer what is finished, and again."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq

import numpy as np

from service.engine.backend import Backend
from service.engine.batch import Batch
from service.engine.line import Watch
from service.engine.observer import Observer
from service.engine.sequence import Sequence
from service.engine.waiting import EngineLimits, Ticket, WaitingLine


class Loop:
    """One thread's work.

    Sequences of like length share a table, because a table's cost follows its capacity; and those of one beam size,
    because the beams of a source read its cross-attention cache together. All tables advance in turn, one token each.
    """

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
        self._capacities = tuple(capacities)
        self._batches: dict[tuple[int, int], Batch] = {}
        self._watch = Watch(line)
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
            for batch in list(self._batches.values()):
                batch.compact()
                if batch.sequences:
                    self._advance(batch)
                    self._move_outgrown(batch)
            self._drop_empty()

    def sequences(self) -> list[Sequence]:
        return [sequence for batch in self._batches.values() for sequence in batch.sequences]

    def _admit(self, tickets: Seq[Ticket]) -> None:
        """Encode newcomers together, each in the table for its length."""
        if not tickets:
            return
        now = time.monotonic()
        self._watch.add(tickets)
        sequences = []
        for ticket in tickets:
            if ticket.is_late(now):
                ticket.fail_late("before it was begun")
            elif not ticket.is_settled:
                self._observer.on_queue(now - ticket.submitted)
                sequences.append(Sequence(ticket, self._backend.bos_id, self._backend.eos_id))
        newcomers: dict[tuple[int, int], list[Sequence]] = {}
        for sequence in sorted(sequences, key=lambda sequence: sequence.num_source_tokens):
            key = self._capacity(sequence.num_source_tokens), sequence.beam_size
            newcomers.setdefault(key, []).append(sequence)
        for (capacity, beam_size), group in newcomers.items():
            for part in cut_batches(group, self._limits.max_batch_tokens, self._limits.overhead_tokens):
                self._encode(self._batch(capacity, beam_size), part)
        if sequences:
            self._observer.on_rows(self.active_rows, self._limits.max_rows)

    def _encode(self, batch: Batch, group: Seq[Sequence]) -> None:
        lengths = np.array([sequence.num_source_tokens for sequence in group], dtype=np.int64)
        input_ids = np.full((len(group), int(lengths.max())), self._backend.pad_id, dtype=np.int64)
        for ids, sequence in zip(input_ids, group, strict=True):
            ids[: sequence.num_source_tokens] = sequence.ticket.request.input_ids
            self.active_rows += sequence.beam_size
        batch.table.encode(input_ids, lengths, [batch.add(sequence) for sequence in group])
        num_tokens = int(lengths.sum())
        self.num_source_tokens += num_tokens
        self.num_padded_tokens += input_ids.size - num_tokens
        self._observer.on_encode(len(group), num_tokens, input_ids.size - num_tokens)

    def _drop_abandoned(self) -> None:
        """Free the rows of callers that left, and of those whose deadline has passed."""
        now = time.monotonic()
        if not self._watch.is_due(now):
            return
        for batch in self._batches.values():
            gone = []
            for sequence in batch.sequences:
                ticket = sequence.ticket
                if ticket.is_settled:
                    gone.append(sequence)
                elif ticket.is_late(now):
                    ticket.fail_late(f"after {sequence.position} tokens")
                    gone.append(sequence)
            self._release(batch, gone)
        self._watch.renew(sequence.ticket for sequence in self.sequences())

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
        self.active_rows -= sum(sequence.beam_size for sequence in sequences)
        batch.remove(sequences)
        self._observer.on_rows(self.active_rows, self._limits.max_rows)

    def _capacity(self, length: int) -> int:
        """The least capacity class that holds `length` positions."""
        return next(capacity for capacity in self._capacities if length <= capacity)

    def _batch(self, capacity: int, beam_size: int) -> Batch:
        key = capacity, beam_size
        if key not in self._batches:
            max_rows = self._limits.max_rows
            self._batches[key] = Batch(self._backend.new_table(max_rows, beam_size), max_rows, beam_size, capacity)
        return self._batches[key]

    def _move_outgrown(self, batch: Batch) -> None:
        for sequence in batch.outgrown():
            batch.move(sequence, self._batch(self._capacity(sequence.position + 1), batch.beam_size))

    def _drop_empty(self) -> None:
        """Give back the memory of tables that are done, but keep the last one: the next request may well be alike."""
        if not self.active_rows:
            return
        for key, batch in list(self._batches.items()):
            if not batch.sequences:
                self._batches.pop(key).table.release()


def cut_batches(sequences: Seq[Sequence], max_tokens: int, overhead_tokens: int) -> list[list[Sequence]]:
    """Cut sequences, sorted by length, into encoder batches within `max_tokens`, padding (longest x count) included.

    A batch costs as much as `overhead_tokens` beside its tokens, so it ends where the padding that the next sequence
    would bring to those before it costs more than a batch of its own.
    """
    groups: list[list[Sequence]] = []
    longest = 0
    for sequence in sequences:
        length = sequence.num_source_tokens
        count = len(groups[-1]) if groups else 0
        if not groups or length * (count + 1) > max_tokens or (length - longest) * count > overhead_tokens:
            groups.append([])
        groups[-1].append(sequence)
        longest = length
    return groups
