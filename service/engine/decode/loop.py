"""The decoding loop: schedule what runs, run it, let each sequence accept its next token, deliver what is finished."""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from itertools import chain

from service.engine.core.arrays import pad
from service.engine.core.batches import cut_batches
from service.engine.core.errors import InvalidOutputError
from service.engine.core.lanes import Lane, LaneClock
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
_PIECE_SECONDS = 0.004
"""How long a call of the bulk lane may take while short requests come, which is how long they wait for their turn."""
_FIRST_PIECE, _LEAST_TOKENS = 16, 16
"""Rows or tokens of a call whose time is not known yet, and the smallest chunk of prefill."""


class _Pace:
    """How many rows, or tokens of prefill, a call of `_PIECE_SECONDS` has."""

    def __init__(self) -> None:
        self._seconds = 0.0  # for each, a moving average

    @property
    def size(self) -> int:
        return max(1, int(_PIECE_SECONDS / self._seconds)) if self._seconds else _FIRST_PIECE

    def note(self, size: int, seconds: float) -> None:
        """A call of this size took so long."""
        each = seconds / size
        self._seconds = (self._seconds + each) / 2 if self._seconds else each


class _LaneWork:
    """A loop's tables and prompts of one lane."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.batches: dict[tuple[int, int], Batch] = {}  # by capacity and beam size
        self.waiting: list[Sequence] = []  # those whose prefill is not complete, in order of admission
        self.paces: dict[tuple[int, int] | None, _Pace] = {}  # of each table's steps; None: of prefill
        self.num_pieces = 0

    @property
    def has_work(self) -> bool:
        return bool(self.waiting) or not all(batch.is_empty for batch in self.batches.values())

    @property
    def num_unread(self) -> int:
        """Tokens of prompts that are not prefilled yet."""
        return sum(sequence.num_prompt_tokens - sequence.position for sequence in self.waiting)

    def reading(self, call: Call) -> Call:
        """`call`, after its sequences have been removed from those that wait."""
        read = set(map(id, call.sequences))
        self.waiting = [sequence for sequence in self.waiting if id(sequence) not in read]
        return call


class DecodingLoop:
    """One thread's work.

    Sequences of like length and one beam size share a table: its cost follows its capacity, and the beams of a source
    read its memory together. All tables advance in turn, one token each. Prefill is chunked: between two turns it takes
    at most `max_prompt_batch_tokens`, so that a long prompt does not delay the others.

    Each lane has tables of its own, and the lanes take turns by measured time. While short requests come, a turn of the
    bulk lane is one call of a few milliseconds (docs/decisions/0161-fair-turns.md).
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
        self._lanes = tuple(_LaneWork(lane) for lane in Lane)
        self._clock = LaneClock()
        self._watch = Watch(line)
        self._events: dict[Inbox, list[tuple[Listener, TokenEvent | None]]] = {}
        self._usage = Usage()
        self.counts = WorkCounts()

    def run(self) -> None:
        """Work until the queue has stopped and every admitted request is answered."""
        while self._admit():
            express, bulk = self._lanes
            work = self._lanes[self._clock.choose(express.has_work, bulk.has_work)]
            started = time.monotonic()
            if work is bulk and self._line.is_contended(started):
                self._run_piece(work)
            else:
                for call in self._schedule(work):
                    self._run(call)
            self._drop_empty()
            self._clock.spend(work.lane, time.monotonic() - started)

    def _run(self, call: Call) -> None:
        steps = call.run()
        finished = self._accept(call, steps)
        self._deliver(finished)

    # Admission

    def _admit(self) -> bool:
        """Drop cancelled and late sequences, and admit what there is room for; False at the end."""
        self._drop_abandoned()
        if self._line.has_nothing_for(self._index, self._usage):
            return True
        tickets = self._line.take(self._index, self._usage, [work.num_unread for work in self._lanes])
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
        self._use(sequences, 1)
        self._observer.on_rows(self._usage.rows, self._limits.max_rows)
        for work in self._lanes:
            arrived = [sequence for sequence in sequences if sequence.ticket.lane is work.lane]
            work.waiting += [sequence for sequence in arrived if self._needs_prefill(sequence)]
            started = time.monotonic()
            self._begin(work, [sequence for sequence in arrived if not self._needs_prefill(sequence)])
            self._clock.spend(work.lane, time.monotonic() - started)
        return True

    def _waiting(self) -> Iterator[Sequence]:
        """Those of both lanes whose prefill is not complete."""
        return chain.from_iterable(work.waiting for work in self._lanes)

    def _sequence(self, ticket: Ticket) -> Sequence:
        request = ticket.request
        sequence = sequence_of(ticket, self._backend)
        sequence.num_bytes = self._line.cache_bytes(request)
        if request.listener is not None:
            request.listener.queue_seconds = sequence.admitted - ticket.submitted
        return sequence

    def _use(self, sequences: Seq[Sequence], sign: int) -> None:
        """Count what sequences take, or with -1 what they give back."""
        for lane in Lane:
            of_lane = [sequence for sequence in sequences if sequence.ticket.lane is lane]
            num_rows = sum(sequence.request.num_rows for sequence in of_lane)
            num_bytes = sum(sequence.num_bytes for sequence in of_lane)
            self._usage = self._usage.plus(lane, sign * num_rows, sign * num_bytes)

    @staticmethod
    def _needs_prefill(sequence: Sequence) -> bool:
        """Not for a prompt of one token, which the first decode step reads."""
        return sequence.num_prompt_tokens > 1 or sequence.is_scored

    def _begin(self, work: _LaneWork, sequences: Seq[Sequence]) -> None:
        """Give sequences that need no prefill their slots, and encode their sources together."""
        groups: dict[tuple[int, int], list[Sequence]] = {}
        for sequence in sequences:
            groups.setdefault((self._first_capacity(sequence), sequence.request.num_rows), []).append(sequence)
        for (capacity, beam_size), group in groups.items():
            batch = self._batch(work, capacity, beam_size)
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
        for sequence in (*self._waiting(), *self._decoding()):
            ticket = sequence.ticket
            if ticket.is_late(now):
                ticket.fail_late(f"after {sequence.position} tokens")
            if ticket.is_settled:
                gone.append(sequence)
        self._release(gone)
        self._watch.renew(sequence.ticket for sequence in (*self._waiting(), *self._decoding()))

    def _decoding(self) -> list[Sequence]:
        return [sequence for work in self._lanes for batch in work.batches.values() for sequence in batch.decoding]

    # Schedule

    def _schedule(self, work: _LaneWork) -> Iterator[Call]:
        """A lane's calls until the next admission: a chunk of prefill, then a decode step of each table."""
        if work.waiting:
            yield self._read_prompts(work, self._limits.max_prompt_batch_tokens)
        for batch in list(work.batches.values()):
            batch.compact()
            if num_rows := batch.num_rows:
                started = time.monotonic()
                call = batch.step(1 if work.waiting else self._limits.greedy_steps, self._backend.eos_ids)
                yield call
                self._line.speed.note(num_rows, batch.capacity, (time.monotonic() - started) / call.num_steps)

    def _run_piece(self, work: _LaneWork) -> None:
        """Run one call of `_PIECE_SECONDS`: a chunk of prefill, or a decode step of some rows of a table, in turn."""
        steps = [key for key, batch in work.batches.items() if batch.decoding]
        turns: list[tuple[int, int] | None] = [None] * bool(work.waiting) + steps
        if not turns:
            return
        key = turns[work.num_pieces % len(turns)]
        work.num_pieces += 1
        pace = work.paces.setdefault(key, _Pace())
        if key is None:
            call = self._read_prompts(work, min(self._limits.max_prompt_batch_tokens, max(_LEAST_TOKENS, pace.size)))
        else:
            batch = work.batches[key]
            batch.compact()
            call = batch.step(max_rows=pace.size)
        started = time.monotonic()
        self._run(call)
        pace.note(call.input_ids.size, time.monotonic() - started)

    def _read_prompts(self, work: _LaneWork, max_tokens: int) -> Call:
        """Prefill the oldest prompt that waits, or a chunk of it, together with others of like length."""
        oldest = work.waiting[0]
        capacity = self._first_capacity(oldest)
        batch = self._batch(work, capacity, 1)
        batch.compact()
        if isinstance(oldest, ChosenSequence) and oldest.is_scored:
            return self._read_scored(work, batch, oldest, max_tokens)
        waiting = [each for each in work.waiting if self._first_capacity(each) == capacity and not each.is_scored]
        beginnings = plan_beginnings(waiting, self._decoding(), self._pool)
        pending = [beginning.pending for beginning in beginnings]
        group = choose_group(pending, max_tokens, self._backend.max_total_tokens)
        chosen = [beginnings[member] for member in group.members]
        sequences = self._begin_reading(batch, chosen)
        num_read = sum(min(group.num_tokens, beginning.pending.remaining) for beginning in chosen)
        self._count_read(len(sequences), num_read, group.num_tokens * len(sequences))
        return work.reading(batch.read(sequences, group.num_tokens))

    def _read_scored(self, work: _LaneWork, batch: Batch, sequence: ChosenSequence, max_tokens: int) -> Call:
        """Prefill a chunk of a prompt whose tokens are scored: alone, within the memory for its logits.

        No prefix is reused, since the outputs after every token are needed.
        """
        self._begin_reading(batch, [Beginning(sequence, 0, None)])
        most = min(max_tokens, max(1, _MAX_LOGITS // self._backend.vocab_size))
        num_new = min(most, sequence.num_prompt_tokens - sequence.position)
        self._count_read(1, num_new, num_new)
        return work.reading(batch.read_scored(sequence, num_new))

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
                if len(steps) == 1:
                    is_going_on = sequence.accept(steps[0], call.first_row)
                else:
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
                work = self._lanes[sequence.ticket.lane]
                batch.hand_over(sequence, self._batch(work, capacity, sequence.request.num_rows))
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
        self._use(sequences, -1)
        for sequence in sequences:
            if sequence.batch is None:
                continue
            if are_valid:
                self._keep(sequence)
            sequence.batch.release(sequence)
        gone = set(map(id, sequences))
        for work in self._lanes:
            work.waiting = [sequence for sequence in work.waiting if id(sequence) not in gone]
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

    def _batch(self, work: _LaneWork, capacity: int, beam_size: int) -> Batch:
        key = capacity, beam_size
        if key not in work.batches:
            max_rows = self._limits.max_rows
            table = self._backend.new_table(max_rows, beam_size)
            work.batches[key] = Batch(table, max_rows, beam_size, capacity, self._backend.pad_id)
        return work.batches[key]

    def _drop_empty(self) -> None:
        """Release empty tables; while the loop is idle they stay, since the next request may need the same."""
        if not self._usage.rows:
            return
        for work in self._lanes:
            for key, batch in list(work.batches.items()):
                if batch.is_empty:
                    work.batches.pop(key).table.release()
