"""The engine of one decoder, with a source or without: streams of tokens and whole results in one continuous batch."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from dataclasses import replace

from service.engine.core.base import BaseEngine, check_ids, check_loops
from service.engine.core.observer import NullObserver, Observer
from service.engine.decode.backend import Backend
from service.engine.decode.line import DecodingLimits, DecodingLine
from service.engine.decode.loop import DecodingLoop
from service.engine.decode.prefix import PrefixPool
from service.engine.decode.stream import EventLoopInbox, TokenStream
from service.engine.decode.types import DecodingRequest, Result

SHORT_CAPACITIES = (128, 512)
"""Sequences up to these lengths have tables of their own, so that one long sequence does not slow the short ones.

docs/decisions/0051-generation-batches.md has the measurements.
"""
SHORT_SOURCE_CAPACITIES = (64, 256)
"""The same for a model that reads a source, by the source or the output, whichever is longer; see 0005."""


class DecodingEngine(BaseEngine[DecodingRequest, Result]):
    """Continuous batching for one decoder.

    `num_loops` threads share the queue, the model's weights and the prefix cache. On a CPU, several loops of one thread
    each usually have a higher throughput than one loop of several threads. `capacities` are the lengths up to which
    sequences have tables of their own.
    """

    _line: DecodingLine

    def __init__(
        self,
        backend: Backend,
        limits: DecodingLimits | None = None,
        num_loops: int = 1,
        observer: Observer | None = None,
        capacities: Sequence[int] | None = None,
    ) -> None:
        check_loops(num_loops)
        self.limits = limits or DecodingLimits()
        self.backend = backend
        if capacities is None:
            capacities = SHORT_SOURCE_CAPACITIES if backend.max_source_tokens else SHORT_CAPACITIES
        longest = max(backend.max_source_tokens, backend.max_total_tokens)
        tables = [capacity for capacity in capacities if capacity < longest] + [longest]
        line = DecodingLine(self.limits, num_loops, backend, tables)
        pool = PrefixPool(self.limits.max_prefix_tokens)
        watcher = observer or NullObserver()
        loops = [DecodingLoop(index, backend, line, self.limits, tables, pool, watcher) for index in range(num_loops)]
        self._inboxes = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, EventLoopInbox]()
        works, counts = [loop.run for loop in loops], [loop.counts for loop in loops]
        super().__init__(line, works, counts, self.limits.max_rows * num_loops)

    async def open(self, request: DecodingRequest) -> TokenStream:
        """Queue one request and return the stream of its tokens, to be read on the event loop of the caller.

        Raises OverloadedError when the queue is full, RequestTooLargeError when the request could never be admitted,
        ModelUnavailableError when the engine has failed or is shutting down, and ValueError for an invalid request.
        """
        if request.options.beam_size > 1:
            raise ValueError(f"beam_size is {request.options.beam_size}; a beam search cannot be streamed")
        loop = asyncio.get_running_loop()
        stream = TokenStream(request, self._inboxes.setdefault(loop, EventLoopInbox(loop)))
        stream.attach(self.submit(replace(request, listener=stream)))
        return stream

    def estimate_seconds(self, requests: Sequence[DecodingRequest]) -> float:
        """What `requests` take at the least, had they the engine to themselves; 0 where nothing was measured yet."""
        return self._line.speed.estimate_seconds(requests) / len(self._threads)

    @property
    def max_beam_size(self) -> int:
        """The widest beam for which a step gives enough candidates: each beam needs one, and one for each end token."""
        return min(self.limits.max_rows, self.backend.num_candidates // (1 + len(self.backend.eos_ids)))

    def _check(self, request: DecodingRequest) -> None:
        backend, options = self.backend, request.options
        if (request.source_ids is None) == bool(backend.max_source_tokens):
            raise ValueError(f"source_ids must {'' if backend.max_source_tokens else 'not '}be given for this model")
        check_ids("source_ids", request.source_ids or (), backend.vocab_size)
        check_ids("prompt_ids", request.prompt_ids, backend.vocab_size)
        if request.sampling.logit_bias:
            check_ids("logit_bias", [token_id for token_id, _ in request.sampling.logit_bias], backend.vocab_size)
        if options.is_restricted:
            check_ids("suppressed_ids", (*options.suppressed_ids, *options.first_suppressed_ids), backend.vocab_size)
        if request.top_n_tokens > backend.num_candidates:
            raise ValueError(f"top_n_tokens is {request.top_n_tokens}, allowed: 0 to {backend.num_candidates}")
        if options.beam_size > 1 and options.beam_size > max(1, self.max_beam_size):
            raise ValueError(f"beam_size is {options.beam_size}, allowed: 1 to {max(1, self.max_beam_size)}")
