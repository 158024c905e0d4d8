"""The decoding loop: schedule what runs, run it, let each sequence accept its next token, deliver what is finished."""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq

from service.engine.core.arrays import pad
from service.engine.core.batches import cut_batches
from service.engine.core.errors import InvalidOutputError
from service.engine.core.line import Watch
from service.engine.core.observer import Observer
from service.engine.core.types import WorkCounts
from service.engine.decode.backend import Backend
from service.engine.decode.batch import Batch, Call
from service.engine.decode.line import DecodingLimits, DecodingLine, Usage
from service.engine.decode.prefill import Beginning, choose_group, plan_beginnings
from service.engine.decode.prefix import PrefixPool
from service.engine.decode.sequence import ChosenSequence, Outputs, Sequence, Ticket, sequence_of
from service.engine.decode.types import Inbox, Listener, TokenEvent

_MAX_LOGITS = 4 << 20
"""Logits that one chunk of a scored prompt may give: 16 MiB, and as much again while they are ranked."""


class DecodingLoop:
    """One thread's work.

    Sequences of like length and one beam size share a table: its cost follows its capacity, and the beams of a source
    read its memory together. All tables advance in turn, one token each. Prefill is chunked: between two turns it takes
    at most `max_prompt_batch_tokens`, so that a long prompt does not delay the others.
    """

    def __init__(
        self,
        index: int,
        backend: Backend,
        line: DecodingLine,
        limits: DecodingLimits,
        capacities: Seq[int],
        pool: PrefixPool,
        observer: Observer,
    ) -> None:
        self._index, self._backend, self._line = index, backend, line
        self._limits, self._observer, self._pool = limits, observer, pool
        self._capacities = tuple(capacities)
        self._batches: dict[tuple[int, int], Batch] = {}  # by capacity and beam size
        self._watch = Watch(line)
        self._waiting: list[Sequence] = []  # those whose prefill is not complete, in order of arrival
        self._events: dict[Inbox, list[tuple[Listener, TokenEvent | None]]] = {}
        self._usage = Usage()
        self.counts = WorkCounts()

    def run(self) -> None:
        """Work until the queue has stopped and every admitted request is answered."""
        while self._admit():
            for call in self._schedule():
                steps = call.run()
                finished = self._accept(call, steps)
                self._deliver(finished)

    # Admission

    def _admit(self) -> bool:
        """Drop cancelled and late sequences, and admit what there is room for; False at the end."""
        self._drop_abandoned()
        tickets = self._line.take(self._index, self._usage)
        if tickets is None:
            return False
        if not tickets:
            return True
        now = time.monotonic()
        self._watch.add(tickets)
        sequences = []
        for ticket in tickets:
            if ticket.is_late(now):
                ticket.fail_late("before it was begun")
            elif not ticket.is_settled:
                self._observer.on_queue(now - ticket.submitted)
                sequences.append(self._sequence(ticket))
        self._observer.on_rows(self._usage.rows, self._limits.max_rows)
        self._waiting += [sequence for sequence in sequences if self._needs_prefill(sequence)]
        self._begin([sequence for sequence in sequences if not self._needs_prefill(sequence)])
        return True

    def _sequence(self, ticket: Ticket) -> Sequence:
        request = ticket.request
        sequence = sequence_of(ticket, self._backend)
        self._use(request.num_rows, self._line.cache_bytes(request))
        if request.listener is not None:
            request.listener.queue_seconds = sequence.admitted - ticket.submitted
        return sequence

    def _use(self, rows: int, num_bytes: int) -> None:
        self._usage = Usage(self._usage.rows + rows, self._usage.num_bytes + num_bytes)

    @staticmethod
    def _needs_prefill(sequence: Sequence) -> bool:
        """Not for a prompt of one token, which the first decode step reads."""
        return sequence.num_prompt_tokens > 1 or sequence.is_scored

    def _begin(self, sequences: Seq[Sequence]) -> None:
        """Give sequences that need no prefill their slots, and encode their sources together."""
        groups: dict[tuple[int, int], list[Sequence]] = {}
        for sequence in sequences:
            groups.setdefault((self._first_capacity(sequence), sequence.request.num_rows), []).append(sequence)
        for (capacity, beam_size), group in groups.items():
            batch = self._batch(capacity, beam_size)
            for sequence in group:
                batch.add(sequence)
                if sequence.request.source_ids is None:
                    self._observer.on_prompt(1, 0, 0)
            self._encode(batch, group)

    def _encode(self, batch: Batch, sequences: Seq[Sequence]) -> None:
        """Encode the sources of sequences that have their places in a batch, those of like length together."""
        sourced = [(source, sequence) for sequence in sequences if (source := sequence.request.source_ids)]
        sourced.sort(key=lambda pair: len(pair[0]))
        lengths = [len(source) for source, _ in sourced]
        for indices in cut_batches(lengths, self._limits.max_batch_tokens, self._limits.overhead_tokens):
            part = sourced[indices.start : indices.stop]
            input_ids, part_lengths = pad([source for source, _ in part], self._backend.pad_id)
            slots = [sequence.first_row // batch.beam_size for _, sequence in part]
            batch.table.encode(input_ids, part_lengths, slots)
            self._count_read(len(part), sum(lengths[indices.start : indices.stop]), input_ids.size)

    def _count_read(self, num_rows: int, num_tokens: int, num_computed: int) -> None:
        self.counts.num_tokens += num_tokens
        self.counts.num_padded_tokens += num_computed - num_tokens
        self._observer.on_encode(num_rows, num_tokens, num_computed - num_tokens)

    def _drop_abandoned(self) -> None:
        """Free the rows of requests that were cancelled or whose deadline has passed."""
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

    # Schedule

    def _schedule(self) -> Iterator[Call]:
        """The calls until the next admission: a chunk of prefill, then a decode step of each table."""
        if self._waiting:
            yield self._read_prompts()
        for batch in list(self._batches.values()):
            batch.compact()
            if batch.num_rows:
                yield batch.step(1 if self._waiting else self._limits.greedy_steps, self._backend.eos_ids)
        self._drop_empty()

    def _read_prompts(self) -> Call:
        """Prefill the oldest prompt that waits, or a chunk of it, together with others of like length."""
        oldest = self._waiting[0]
        capacity = self._first_capacity(oldest)
        batch = self._batch(capacity, 1)
        batch.compact()
        if isinstance(oldest, ChosenSequence) and oldest.is_scored:
            return self._read_scored(batch, oldest)
        waiting = [each for each in self._waiting if self._first_capacity(each) == capacity and not each.is_scored]
        beginnings = plan_beginnings(waiting, self._decoding(), self._pool)
        pending = [beginning.pending for beginning in beginnings]
        group = choose_group(pending, self._limits.max_prompt_batch_tokens, self._backend.max_total_tokens)
        chosen = [beginnings[member] for member in group.members]
        sequences = self._begin_reading(batch, chosen)
        num_read = sum(min(group.num_tokens, beginning.pending.remaining) for beginning in chosen)
        self._count_read(len(sequences), num_read, group.num_tokens * len(sequences))
        return self._reading(batch.read(sequences, group.num_tokens))

    def _read_scored(self, batch: Batch, sequence: ChosenSequence) -> Call:
        """Prefill a chunk of a prompt whose tokens are scored: alone, within the memory for its logits.

        No prefix is reused, since the outputs after every token are needed.
        """
        self._begin_reading(batch, [Beginning(sequence, 0, None)])
        most = min(self._limits.max_prompt_batch_tokens, max(1, _MAX_LOGITS // self._backend.vocab_size))
        num_new = min(most, sequence.num_prompt_tokens - sequence.position)
        self._count_read(1, num_new, num_new)
        return self._reading(batch.read_scored(sequence, num_new))

    def _reading(self, call: Call) -> Call:
        """`call`, after its sequences have been removed from those that wait."""
        read = set(map(id, call.sequences))
        self._waiting = [sequence for sequence in self._waiting if id(sequence) not in read]
        return call

    def _begin_reading(self, batch: Batch, beginnings: Seq[Beginning]) -> list[Sequence]:
        """Give prompts rows, copy the prefixes that other rows hold, and encode their sources."""
        new = [beginning for beginning in beginnings if beginning.sequence.batch is None]
        for sequence, length, source in new:
            row = batch.begin(sequence)
            sequence.position = length
            num_new_tokens = min(1, sequence.request.options.max_new_tokens)
            self._observer.on_prompt(sequence.num_prompt_tokens, length, num_new_tokens)
            if isinstance(source, Sequence):
                assert source.batch is not None
                batch.table.take_row(source.batch.table, source.first_row + source.rows[0], row, length)
            elif source is not None:
                batch.table.load_row(row, source, length)
        self._encode(batch, [beginning.sequence for beginning in new])
        return [beginning.sequence for beginning in beginnings]

    # Accept

    def _accept(self, call: Call, steps: Seq[Outputs]) -> list[Sequence]:
        """Give each sequence its outputs, step after step; returns those that are finished."""
        finished: list[Sequence] = []
        if call.scored is not None:
            try:
                call.scored.score(call.start, steps[0])
            except InvalidOutputError as error:
                self._fail(call.scored, error)
                return finished
            steps = [steps[0].last()]
        batch, table = call.batch, call.batch.table
        num_further = 0
        for sequence in call.sequences:
            position = sequence.position
            try:
                is_going_on = sequence.accept_steps(steps, call.first_row)
            except InvalidOutputError as error:
                self._fail(sequence, error)
                continue
            num_further += sequence.position - position
            if sequence.events:
                self._tell(sequence)
            if sequence.copies:
                table.copy_rows(sequence.copies, sequence.position)
                sequence.copies = []
            if not is_going_on:
                finished.append(sequence)
            elif sequence.position >= batch.capacity or sequence.request.num_rows != batch.beam_size:
                # It has reached this table's capacity, or its beam needs several rows after prefill in one.
                capacity = self._capacity(max(batch.capacity, sequence.position + 1))
                batch.hand_over(sequence, self._batch(capacity, sequence.request.num_rows))
        num_new = len(call.sequences) * batch.beam_size + num_further
        is_new = call.scored is None or call.scored.request.options.max_new_tokens > 0
        self.counts.num_generated_tokens += num_new * is_new
        if call.num_steps:
            self._count_steps(len(steps), len(call.input_ids))
        return finished

    def _count_steps(self, num_steps: int, num_rows: int) -> None:
        self.counts.num_steps += num_steps
        for _ in range(num_steps):
            self._observer.on_step(num_rows, num_rows, 0)

    def _fail(self, sequence: Sequence, error: InvalidOutputError) -> None:
        sequence.ticket.fail(error)
        self._release([sequence], are_valid=False)

    def _tell(self, sequence: Sequence) -> None:
        listener, events = sequence.request.listener, sequence.events
        sequence.events = []
        if listener is None:
            return
        if listener.prompt_log_probs is None and isinstance(sequence, ChosenSequence):
            listener.prompt_log_probs = sequence.prompt_log_probs
        self._events.setdefault(listener.inbox, []).extend((listener, event) for event in events)

    # Deliver

    def _deliver(self, finished: Seq[Sequence]) -> None:
        """Release the rows of `finished`, post events, one wake-up for each event loop, and set the results."""
        self._release(finished)
        for inbox, events in self._events.items():
            inbox.post(events)
        self._events = {}
        for sequence in finished:
            sequence.ticket.answer(sequence.result())

    def _release(self, sequences: Seq[Sequence], *, are_valid: bool = True) -> None:
        """Remove finished or abandoned sequences, and offer their rows to the prefix cache."""
        if not sequences:
            return
        for sequence in sequences:
            request = sequence.request
            self._use(-request.num_rows, -self._line.cache_bytes(request))
            if sequence.batch is None:
                continue
            if are_valid:
                self._keep(sequence)
            sequence.batch.release(sequence)
        gone = set(map(id, sequences))
        self._waiting = [sequence for sequence in self._waiting if id(sequence) not in gone]
        self._observer.on_rows(self._usage.rows, self._limits.max_rows)

    def _keep(self, sequence: Sequence) -> None:
        text = sequence.text
        if self._pool.wants(text):
            assert sequence.batch is not None
            row = sequence.first_row + sequence.rows[0]
            self._pool.keep(text, sequence.batch.table.save_row(row, len(text.token_ids)))

    # Tables

    def _first_capacity(self, sequence: Sequence) -> int:
        """The capacity class that a sequence starts in: for its source, and its prompt with a token of output."""
        return self._capacity(max(sequence.num_first_tokens, len(sequence.request.source_ids or ())))

    def _capacity(self, length: int) -> int:
        """The least capacity class that holds `length` positions."""
        return next(capacity for capacity in self._capacities if length <= capacity)

    def _batch(self, capacity: int, beam_size: int) -> Batch:
        key = capacity, beam_size
        if key not in self._batches:
            max_rows = self._limits.max_rows
            table = self._backend.new_table(max_rows, beam_size)
            self._batches[key] = Batch(table, max_rows, beam_size, capacity, self._backend.pad_id)
        return self._batches[key]

    def _drop_empty(self) -> None:
        """Release empty tables; while the loop is idle they stay, since the next request may need the same."""
        if not self._usage.rows:
            return
        for key, batch in list(self._batches.items()):
            if batch.is_empty:
                self._batches.pop(key).table.release()
