"""The engine of one decoder: streams of tokens, and searches, in one continuous batch."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence

from service.engine.base import BaseEngine
from service.engine.generation.backend import GenerationBackend
from service.engine.generation.line import GenerationLimits, GenerationLine, Job
from service.engine.generation.loop import GenerationLoop
from service.engine.generation.prefix import PrefixPool
from service.engine.generation.stream import GenerationStream, Mailbox
from service.engine.generation.types import GenerationRequest
from service.engine.observer import NullObserver, Observer
from service.engine.types import EngineStats, GenerationResult

SHORT_CAPACITIES = (128, 512)
"""Texts up to these lengths have tables of their own, so that one long text does not slow thirty short ones.

docs/decisions/0051-generation-batches.md has the measurements.
"""


class GenerationEngine(BaseEngine[Job, GenerationResult]):
    """Continuous batching for one decoder.

    `num_loops` threads share the line, the model's weights and the kept prefixes. On a processor, several loops of one
    thread each usually finish more than one loop of several threads.
    """

    _line: GenerationLine

    def __init__(
        self,
        backend: GenerationBackend,
        limits: GenerationLimits | None = None,
        num_loops: int = 1,
        observer: Observer | None = None,
        capacities: Sequence[int] = SHORT_CAPACITIES,
    ) -> None:
        self.limits = limits or GenerationLimits()
        if num_loops < 1:
            raise ValueError(f"num_loops is {num_loops}; it must be at least 1")
        self.backend = backend
        line = GenerationLine(self.limits, num_loops, backend.max_total_tokens)
        tables = [capacity for capacity in capacities if capacity < backend.max_total_tokens]
        tables.append(backend.max_total_tokens)
        pool = PrefixPool(self.limits.max_prefix_tokens)
        watcher = observer or NullObserver()
        self._loops = [
            GenerationLoop(index, backend, line, self.limits, tables, pool, watcher) for index in range(num_loops)
        ]
        self._mailboxes = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox]()
        super().__init__(line, [loop.run for loop in self._loops])

    async def open(self, request: GenerationRequest) -> GenerationStream:
        """Queue one request and return its tokens as they come; they belong to the event loop that asked for them.

        Raises OverloadedError when the line is full, RequestTooLargeError when the request could never be admitted,
        ModelUnavailableError when the engine no longer works, and ValueError for what the model cannot take.
        """
        if request.beam_size > 1:
            raise ValueError(f"beam_size is {request.beam_size}; a beam search is not streamed, but asked for whole")
        loop = asyncio.get_running_loop()
        stream = GenerationStream(request, self._mailboxes.setdefault(loop, Mailbox(loop)))
        stream.attach(self.submit(Job(request, stream)))
        return stream

    async def search(self, request: GenerationRequest) -> GenerationResult:
        """The best hypotheses of a beam search; cancelling the coroutine stops it. Raises as `open` does."""
        if request.sampling.do_sample or request.sampling.changes_logits or request.wants_prompt_log_probs:
            raise ValueError("a search neither samples nor scores single tokens, and knows no biases and penalties")
        return (await self.run([Job(request, None)]))[0]

    def _check(self, job: Job) -> None:
        request, backend = job.request, self.backend
        _check_ids("input_ids", request.input_ids, backend.vocab_size)
        _check_ids("logit_bias", [token_id for token_id, _ in request.sampling.logit_bias], backend.vocab_size)
        if request.top_n_tokens > backend.num_candidates:
            raise ValueError(f"top_n_tokens is {request.top_n_tokens}, allowed: 0 to {backend.num_candidates}")
        if job.stream is None and request.beam_size > self.max_beam_size:
            raise ValueError(f"beam_size is {request.beam_size}, allowed: 1 to {self.max_beam_size}")

    @property
    def max_beam_size(self) -> int:
        """The widest beam for which a step gives candidates enough: one to go on with, and one for each end token."""
        return min(self.limits.max_rows, self.backend.num_candidates // (1 + len(self.backend.eos_ids)))

    def stats(self) -> EngineStats:
        requests, tokens, active_rows = self._line.size()
        padded = sum(loop.num_padded_tokens for loop in self._loops)
        real = sum(loop.num_prompt_tokens for loop in self._loops)
        return EngineStats(
            waiting_requests=requests,
            waiting_tokens=tokens,
            active_rows=active_rows,
            max_rows=self.limits.max_rows * len(self._loops),
            steps=sum(loop.num_steps for loop in self._loops),
            generated_tokens=sum(loop.num_generated_tokens for loop in self._loops),
            padding_share=padded / (padded + real) if padded else 0.0,
            is_alive=self.is_alive,
        )


def _check_ids(name: str, ids: Sequence[int], size: int) -> None:
    """An id that has no row in its table would stop the whole model, so it is refused at the door."""
    if ids and not (min(ids) >= 0 and max(ids) < size):
        wrong = next(number for number in ids if not 0 <= number < size)
        raise ValueError(f"{name} holds {wrong}, allowed: 0 to {size - 1}")
