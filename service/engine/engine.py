"""The engine of one translation model: a waiting line, and one or more loops that work it off."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.backend import Backend
from service.engine.base import BaseEngine
from service.engine.loop import Loop
from service.engine.observer import NullObserver, Observer
from service.engine.types import EngineStats, GenerationResult, InferenceRequest
from service.engine.waiting import EngineLimits, WaitingLine

SHORT_CAPACITIES = (64, 256)
"""Sequences up to these lengths have tables of their own, so that one long text does not slow thirty short ones."""


class Engine(BaseEngine[InferenceRequest, GenerationResult]):
    """Continuous batching for one model.

    `num_loops` threads share the line and the model's weights. On a processor, several loops of one thread each usually
    finish more than one loop of several threads.
    """

    _line: WaitingLine

    def __init__(
        self,
        backend: Backend,
        limits: EngineLimits | None = None,
        num_loops: int = 1,
        observer: Observer | None = None,
        capacities: Sequence[int] = SHORT_CAPACITIES,
    ) -> None:
        self.limits = limits or EngineLimits()
        if num_loops < 1:
            raise ValueError(f"num_loops is {num_loops}; it must be at least 1")
        self.backend = backend
        line = WaitingLine(self.limits, num_loops, backend.max_source_tokens)
        longest = max(backend.max_source_tokens, backend.max_target_tokens)
        tables = [capacity for capacity in capacities if capacity < longest] + [longest]
        watcher = observer or NullObserver()
        self._loops = [Loop(index, backend, line, self.limits, tables, watcher) for index in range(num_loops)]
        super().__init__(line, [loop.run for loop in self._loops])

    def _check(self, request: InferenceRequest) -> None:
        longest = self.backend.max_target_tokens
        if request.options.max_new_tokens > longest:
            raise ValueError(f"max_new_tokens is {request.options.max_new_tokens}, allowed: 1 to {longest}")
        if 2 * request.options.beam_size > self.backend.num_candidates and request.options.beam_size > 1:
            limit = self.backend.num_candidates // 2
            raise ValueError(f"beam_size is {request.options.beam_size}, allowed: 1 to {limit}")

    def stats(self) -> EngineStats:
        requests, tokens, active_rows = self._line.size()
        padded = sum(loop.num_padded_tokens for loop in self._loops)
        real = sum(loop.num_source_tokens for loop in self._loops)
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
