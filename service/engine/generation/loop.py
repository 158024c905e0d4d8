"""The generation loop: admit what fits, read a piece of the prompts, advance every stream by one token, and again."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq

from service.engine.errors import InvalidOutputError
from service.engine.generation.backend import GenerationBackend
from service.engine.generation.batch import Batch
from service.engine.generation.beginning import Beginning, plan_beginnings
from service.engine.generation.line import GenerationLimits, GenerationLine, Ticket
from service.engine.generation.prefill import choose_group
from service.engine.generation.prefix import PrefixPool
from service.engine.generation.sequence import Outputs, Row, SearchedSequence, Sequence, StreamedSequence, sequence_of
from service.engine.generation.stream import Letter, Mailbox
from service.engine.line import Watch
from service.engine.observer import Observer

_MAX_LOGITS = 4 << 20
"""Numbers that one piece of a scored prompt may give: 16 MiB, twice that as they are ranked."""


class GenerationLoop:
    """One thread's work.

    Sequences of like length share a table, because a table's cost follows its capacity. Between two steps, no more of
    the prompts is read than `max_batch_tokens`, so that a long one does not hold up the streams that run.
    """

    def __init__(
        self,
        index: int,
        backend: GenerationBackend,
        line: GenerationLine,
        limits: GenerationLimits,
        capacities: Seq[int],
        pool: PrefixPool,
        observer: Observer,
    ) -> None:
        self._index, self._backend, self._line = index, backend, line
        self._limits, self._observer, self._pool = limits, observer, pool
        self._capacities = tuple(capacities)
        self._eos_ids = frozenset(backend.eos_ids)
        self._batches: dict[int, Batch] = {}
        self._watch = Watch(line)
        self._waiting: list[Sequence] = []  # prompts that are not read to their ends, in the order of their coming
        self._finished: list[Sequence] = []
        self._letters: dict[Mailbox, list[Letter]] = {}
        self._cached_tokens = 0
        self.active_rows = 0
        self.num_steps = 0
        self.num_generated_tokens = 0
        self.num_prompt_tokens = 0
        self.num_padded_tokens = 0

    def run(self) -> None:
        """Work until the line says stop and everything admitted is answered."""
        while True:
            self._drop_abandoned()
            tickets = self._line.take_for(self._index, self.active_rows, self._cached_tokens)
            if tickets is None:
                return
            self._admit(tickets)
            self._read_prompts()
            self._deliver()  # the first token does not wait for the step of the others
            for batch in list(self._batches.values()):
                batch.compact()
                if batch.num_rows:
                    self._step(batch)
                    self._move_outgrown(batch)
            self._drop_empty()
            self._deliver()

    def _admit(self, tickets: Seq[Ticket]) -> None:
        now = time.monotonic()
        self._watch.add(tickets)
        for ticket in tickets:
            if ticket.is_late(now):
                ticket.fail_late("before it was begun")
            elif not ticket.is_settled:
                self._observer.on_queue(now - ticket.submitted)
                sequence = sequence_of(ticket, self._eos_ids)
                self.active_rows += ticket.request.num_rows
                self._cached_tokens += ticket.request.num_cached_tokens
                stream = ticket.request.stream
                if stream is not None:
                    stream.queue_seconds = sequence.admitted - ticket.submitted
                self._waiting.append(sequence)
        if tickets:
            self._observer.on_rows(self.active_rows, self._limits.max_rows)

    def _drop_abandoned(self) -> None:
        """Free the rows of callers that left, and of those whose deadline has passed."""
        now = time.monotonic()
        if not self._watch.is_due(now):
            return
        gone = []
        for sequence in (*self._waiting, *self._decoding()):
            ticket = sequence.ticket
            if ticket.is_late(now):
                ticket.fail_late(f"after {sequence.position} tokens")
            if ticket.is_settled:
                gone.append(sequence)
        self._release(gone)
        self._watch.renew(sequence.ticket for sequence in (*self._waiting, *self._decoding()))

    def _decoding(self) -> list[Sequence]:
        return [sequence for batch in self._batches.values() for sequence in batch.decoding]

    # Prompts

    def _read_prompts(self) -> None:
        """Read the oldest prompt that waits, or a piece of it, together with others that are about as long."""
        if not self._waiting:
            return
        oldest = self._waiting[0]
        capacity = self._capacity(oldest.num_first_tokens)
        batch = self._batch(capacity)
        batch.compact()
        if isinstance(oldest, StreamedSequence) and oldest.is_scored:
            self._read_scored(batch, oldest)
            return
        waiting = [
            each for each in self._waiting if self._capacity(each.num_first_tokens) == capacity and not each.is_scored
        ]
        beginnings = plan_beginnings(waiting, self._decoding(), self._pool)
        pending = [beginning.pending for beginning in beginnings]
        group = choose_group(pending, self._limits.max_batch_tokens, self._backend.max_total_tokens)
        chosen = [beginnings[member] for member in group.members]
        for beginning in chosen:
            self._begin(batch, beginning)
        sequences = [beginning.sequence for beginning in chosen]
        num_read = sum(min(group.num_tokens, beginning.pending.remaining) for beginning in chosen)
        outputs = batch.read(
            sequences,
            group.num_tokens,
            max(sequence.num_candidates for sequence in sequences),
            any(sequence.needs_logits for sequence in sequences),
        )
        self._count_read(len(sequences), num_read, group.num_tokens * len(sequences) - num_read)
        self._finish_reading(batch, sequences, outputs)

    def _read_scored(self, batch: Batch, sequence: StreamedSequence) -> None:
        """Read a piece of a prompt whose tokens are scored: alone, and no more than the memory for its logits allows.

        Every token is read, also those that another row knows, since what follows each of them is asked for.
        """
        self._begin(batch, Beginning(sequence, 0, None))
        most = min(self._limits.max_batch_tokens, max(1, _MAX_LOGITS // self._backend.vocab_size))
        num_new = min(most, sequence.num_prompt_tokens - sequence.position)
        try:
            outputs = batch.read_scored(sequence, num_new)
        except InvalidOutputError as error:
            sequence.ticket.fail(error)
            self._release([sequence], are_valid=False)
            return
        self._count_read(1, num_new, 0)
        self._finish_reading(batch, [sequence], outputs)

    def _finish_reading(self, batch: Batch, sequences: Seq[Sequence], outputs: Outputs) -> None:
        """Begin to decode `sequences`, if their prompts have been read to their ends."""
        if sequences[0].position == sequences[0].num_prompt_tokens:
            first_row = sequences[0].rows[0].index
            batch.finish_reading()
            self._waiting = [sequence for sequence in self._waiting if sequence not in sequences]
            self._accept(batch, sequences, outputs, first_row)

    def _begin(self, batch: Batch, beginning: Beginning) -> None:
        """Give a newcomer its row, with what another row already knows of its prompt."""
        sequence, length, source = beginning
        if sequence.rows:
            return
        row = batch.begin(sequence)
        sequence.position = length
        self._observer.on_prompt(sequence.num_prompt_tokens, length, min(1, sequence.request.max_new_tokens))
        if isinstance(source, Row):
            row.take(source, length)
        elif source is not None:
            batch.table.load_row(row.index, source, length)

    def _count_read(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        self.num_prompt_tokens += num_tokens
        self.num_padded_tokens += num_padded_tokens
        self._observer.on_encode(num_rows, num_tokens, num_padded_tokens)

    # Steps

    def _step(self, batch: Batch) -> None:
        sequences, num_rows = batch.decoding, batch.num_rows
        outputs = batch.step()
        self.num_steps += 1
        self._observer.on_step(num_rows, num_rows, 0)
        self._accept(batch, sequences, outputs, 0)

    def _accept(self, batch: Batch, sequences: Seq[Sequence], outputs: Outputs, first_row: int) -> None:
        """Let each sequence take what the model gave it, and part from those that are finished."""
        finished, failed = [], []
        for sequence in sequences:
            try:
                is_going_on = sequence.accept(outputs, first_row)
            except InvalidOutputError as error:
                sequence.ticket.fail(error)
                failed.append(sequence)
                continue
            self.num_generated_tokens += min(len(sequence.rows), sequence.request.max_new_tokens)
            if isinstance(sequence, StreamedSequence):
                self._tell(sequence)
            if not is_going_on:
                finished.append(sequence)
            elif isinstance(sequence, SearchedSequence):
                self._copy_beams(batch, sequence)
        self._release(failed, are_valid=False)
        self._finish(finished)

    def _copy_beams(self, batch: Batch, sequence: SearchedSequence) -> None:
        rows, length = sequence.rows, sequence.position
        if len(rows) < sequence.request.beam_size:  # the prompt has been read, in one row
            newcomers = [batch.add(sequence, beam) for beam in range(1, sequence.request.beam_size)]
            sequence.copies = [(rows[0], row) for row in newcomers]
            sequence.rows = [*rows, *newcomers]
        for source, destination in sequence.copies:
            destination.take(source, length)
        sequence.copies = []

    def _move_outgrown(self, batch: Batch) -> None:
        for sequence in batch.outgrown():
            batch.hand_over(sequence, self._batch(self._capacity(sequence.position + 1)))

    # Ends

    def _tell(self, sequence: StreamedSequence) -> None:
        stream, event = sequence.ticket.request.stream, sequence.event
        assert stream is not None
        sequence.event = None
        if stream.prompt_log_probs is None:
            stream.prompt_log_probs = sequence.prompt_log_probs
        self._letters.setdefault(stream.mailbox, []).append((stream, event))

    def _finish(self, sequences: Seq[Sequence]) -> None:
        self._release(sequences)
        self._finished += sequences

    def _deliver(self) -> None:
        """Hand over what there is; each event loop is woken once for all of it. Then the callers are answered."""
        for mailbox, letters in self._letters.items():
            mailbox.post(letters)
        self._letters = {}
        for sequence in self._finished:
            sequence.ticket.answer(sequence.result())
        self._finished = []

    def _release(self, sequences: Seq[Sequence], *, are_valid: bool = True) -> None:
        """Part from sequences that are finished or gone; what their rows hold may be of use to others."""
        if not sequences:
            return
        for sequence in sequences:
            job = sequence.ticket.request
            self.active_rows -= job.num_rows
            self._cached_tokens -= job.num_cached_tokens
            if sequence.rows and are_valid:
                self._keep(sequence)
        self._waiting = [sequence for sequence in self._waiting if sequence not in sequences]
        for batch in self._batches.values():
            batch.remove(sequences)
        self._observer.on_rows(self.active_rows, self._limits.max_rows)

    def _keep(self, sequence: Sequence) -> None:
        text = sequence.text
        if self._pool.wants(text):
            row = sequence.rows[0]
            self._pool.keep(text, row.table.save_row(row.index, len(text.token_ids)))

    # Tables

    def _capacity(self, length: int) -> int:
        """The least capacity class that holds `length` positions."""
        return next(capacity for capacity in self._capacities if length <= capacity)

    def _batch(self, capacity: int) -> Batch:
        if capacity not in self._batches:
            max_rows = self._limits.max_rows
            self._batches[capacity] = Batch(self._backend.new_table(max_rows), max_rows, capacity, self._backend.pad_id)
        return self._batches[capacity]

    def _drop_empty(self) -> None:
        """Give back the memory of tables that are done, but keep the last one: the next request may well be alike."""
        if not self.active_rows:
            return
        for capacity, batch in list(self._batches.items()):
            if batch.is_empty:
                self._batches.pop(capacity).table.release()
