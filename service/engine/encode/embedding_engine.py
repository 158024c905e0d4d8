"""The engine of one embedding model: batches of like length, the next one formed while one runs."""

from __future__ import annotations

import time

from service.engine.core.base import BaseEngine, check_ids, check_loops
from service.engine.core.observer import NullObserver, Observer
from service.engine.core.types import WorkCounts
from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult, EncoderBackend
from service.engine.encode.embedding_batches import build_arrays
from service.engine.encode.embedding_line import Batch, EmbeddingLimits, EmbeddingLine, Stage


class EmbeddingEngine(BaseEngine[EmbeddingRequest, EmbeddingResult]):
    """Batches for one encoder.

    `num_loops` batches run at a time, sharing the queue and the model's weights; one more thread forms the next batch
    and sets the results of the last one meanwhile. On a CPU, several loops of one thread each usually have a higher
    throughput than one loop of several threads.

    Raises ValueError where limits would admit an input that could never run.
    """

    _line: EmbeddingLine

    def __init__(
        self,
        backend: EncoderBackend,
        limits: EmbeddingLimits | None = None,
        num_loops: int = 1,
        observer: Observer | None = None,
    ) -> None:
        self.limits = limits or EmbeddingLimits()
        check_loops(num_loops)
        for name in ("max_batch_tokens", "max_waiting_tokens"):
            if getattr(self.limits, name) < backend.max_input_tokens:
                raise ValueError(
                    f"{name} is {getattr(self.limits, name)}, but an input may have {backend.max_input_tokens} tokens, "
                    "which could then never run"
                )
        self.backend = backend
        line = EmbeddingLine(self.limits, num_loops, backend.max_input_tokens)
        watcher = observer or NullObserver()
        workers = [EncoderWorker(backend, line, watcher) for _ in range(num_loops + 1)]
        super().__init__(line, [worker.run for worker in workers], [worker.counts for worker in workers])

    def _check(self, request: EmbeddingRequest) -> None:
        check_ids("input_ids", request.input_ids, self.backend.vocab_size)
        types = request.token_type_ids
        if types is None:
            return
        if len(types) != request.num_tokens:
            raise ValueError(f"token_type_ids has {len(types)} numbers for {request.num_tokens} tokens")
        check_ids("token_type_ids", types, max(1, self.backend.num_token_types))


class EncoderWorker:
    """One thread: forms batches, runs them and sets their results, as the queue says."""

    def __init__(self, backend: EncoderBackend, line: EmbeddingLine, observer: Observer) -> None:
        self._backend, self._line, self._observer = backend, line, observer
        self.counts = WorkCounts()  # a step is a batch

    def run(self) -> None:
        """Work until the queue has stopped."""
        while (taken := self._line.take()) is not None:
            stage, batch = taken
            if stage is Stage.FORM:
                self._form(batch)
                self._line.formed(batch)
            elif stage is Stage.RUN:
                self._embed(batch)
                self._line.ran(batch)
            else:
                self._answer(batch)

    def _form(self, batch: Batch) -> None:
        for ticket in batch.late:
            ticket.fail_late("before it was begun")
        batch.tickets = [ticket for ticket in batch.tickets if not ticket.is_settled]
        if batch.tickets:
            batch.arrays = build_arrays([ticket.request for ticket in batch.tickets], self._backend.pad_id)

    def _embed(self, batch: Batch) -> None:
        if all(ticket.is_settled for ticket in batch.tickets):
            return
        assert batch.arrays is not None
        batch.started = time.monotonic()
        batch.values = self._backend.encode(*batch.arrays, batch.tickets[0].request.wants_tokens)
        batch.seconds = time.monotonic() - batch.started

    def _answer(self, batch: Batch) -> None:
        if batch.values is None or batch.arrays is None:
            return
        num_tokens, num_padded_tokens = batch.arrays.num_tokens, batch.arrays.num_padded_tokens
        self.counts.num_steps += 1
        self.counts.num_tokens += num_tokens
        self.counts.num_padded_tokens += num_padded_tokens
        self._observer.on_encode(len(batch.tickets), num_tokens, num_padded_tokens)
        for ticket, row in zip(batch.tickets, batch.values, strict=True):
            length = ticket.request.num_tokens
            queued = batch.started - ticket.submitted
            self._observer.on_queue(queued)
            values = row[:length] if ticket.request.wants_tokens else row
            ticket.answer(EmbeddingResult(values, queued, batch.seconds, length))
