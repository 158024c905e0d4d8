"""The property that matters most: whatever else comes and goes, each request gets its own result."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.engine.generation.engine import GenerationEngine
from service.engine.generation.line import GenerationLimits
from service.engine.generation.types import GenerationRequest
from service.engine.sampling.options import SamplingOptions
from tests.service.engine.generation.toy import (
    MAX_TOKENS,
    VOCABULARY,
    ToyDecoder,
    events_of,
    hypotheses_of,
    prompt_log_probs_of,
)

HEADERS = ((), (), tuple(range(3, 20)), tuple(range(3, 23)), tuple(range(20, 3, -1)))
"""Beginnings that prompts share, so that some rows are copies of others."""


@st.composite
def requests(draw: st.DrawFn) -> GenerationRequest:
    tail = draw(st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=12))
    prompt = (*draw(st.sampled_from(HEADERS)), *tail)
    max_new_tokens = draw(st.integers(1, min(24, MAX_TOKENS - len(prompt))))
    if (beam_size := draw(st.sampled_from([1, 1, 1, 2, 3]))) > 1:
        return GenerationRequest(
            input_ids=prompt,
            max_new_tokens=max_new_tokens,
            beam_size=beam_size,
            num_hypotheses=draw(st.integers(1, beam_size)),
        )
    sampling = SamplingOptions(
        do_sample=draw(st.booleans()),
        temperature=draw(st.sampled_from([0.5, 1.0, 1.5])),
        top_k=draw(st.sampled_from([0, 3, 9])),
        top_p=draw(st.sampled_from([1.0, 0.9])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.7])),
        seed=draw(st.integers(0, 1000)),
    )
    is_scored = draw(st.sampled_from([False, False, False, True]))
    return GenerationRequest(
        input_ids=prompt,
        sampling=sampling,
        max_new_tokens=0 if is_scored and draw(st.booleans()) else max_new_tokens,
        ignore_eos=draw(st.booleans()),
        top_n_tokens=draw(st.sampled_from([0, 0, 2])),
        wants_prompt_log_probs=is_scored,
    )


class Visits:
    """Requests that come at given steps of the engine, and perhaps leave after some tokens."""

    def __init__(self, plan: list[tuple[int, GenerationRequest, int | None]]) -> None:
        self.coming = sorted(plan, key=lambda visit: visit[0])
        self.num_steps = 0
        self.changed = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def on_step(self, number: int) -> None:
        self.loop.call_soon_threadsafe(self._count, number)

    def _count(self, number: int) -> None:
        self.num_steps = number
        self.changed.set()

    async def run(self, engine: GenerationEngine) -> None:
        """Until all have come and are answered; where the engine idles, the next one comes."""
        running: set[asyncio.Task[None]] = set()
        while self.coming or running:
            self.changed.clear()
            while self.coming and (not running or self.coming[0][0] <= self.num_steps):
                _, request, num_events = self.coming.pop(0)
                visit = asyncio.create_task(self._visit(engine, request, num_events))
                visit.add_done_callback(lambda _: self.changed.set())
                running.add(visit)
            await asyncio.wait_for(self.changed.wait(), 60)
            for task in {task for task in running if task.done()}:
                running.remove(task)
                task.result()

    @staticmethod
    async def _visit(engine: GenerationEngine, request: GenerationRequest, num_events: int | None) -> None:
        if request.beam_size > 1:
            search = engine.search(request)
            if num_events is None:
                assert list((await search).hypotheses) == hypotheses_of(request)
            else:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(search, 0.002 * num_events)
            return
        expected = events_of(request)
        stream = await engine.open(request)
        found = []
        async for event in stream:
            found.append(event)
            if len(found) == num_events:
                await stream.aclose()
        assert found == expected[: num_events or None]
        if request.wants_prompt_log_probs:
            scores = prompt_log_probs_of(request)
            assert stream.prompt_log_probs is not None
            assert [score.token_id for score in stream.prompt_log_probs] == [score.token_id for score in scores]
            for found_score, score in zip(stream.prompt_log_probs[1:], scores[1:], strict=True):
                assert found_score.log_prob is not None
                assert score.log_prob is not None
                assert abs(found_score.log_prob - score.log_prob) < 1e-5
                assert [token for token, _ in found_score.top_tokens] == [token for token, _ in score.top_tokens]


visits = st.tuples(st.integers(0, 30), requests(), st.none() | st.integers(1, 6))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=st.lists(visits, min_size=1, max_size=16),
    num_loops=st.integers(1, 2),
    max_rows=st.integers(3, 10),
    capacities=st.sampled_from([(), (8,), (6, 20, 30), (16, 32)]),
    max_batch_tokens=st.sampled_from([1, 5, 16, 40, 200]),
    max_prefix_tokens=st.sampled_from([1, 60, 10_000]),
    max_cached_tokens=st.sampled_from([200, 10_000]),
)
def test_each_request_gets_its_own_result_whatever_else_comes_and_goes(
    plan: list[tuple[int, GenerationRequest, int | None]],
    num_loops: int,
    max_rows: int,
    capacities: tuple[int, ...],
    max_batch_tokens: int,
    max_prefix_tokens: int,
    max_cached_tokens: int,
) -> None:
    backend = ToyDecoder()
    limits = GenerationLimits(
        max_rows=max_rows,
        max_batch_tokens=max_batch_tokens,
        max_prefix_tokens=max_prefix_tokens,
        max_cached_tokens=max_cached_tokens,
    )

    async def main() -> None:
        visits = Visits(plan)
        backend.gate.on_step = visits.on_step
        engine = GenerationEngine(backend, limits, num_loops, capacities=capacities)
        engine.start()
        try:
            await visits.run(engine)
            assert await asyncio.to_thread(engine.drain, 60)
            assert engine.stats().is_alive
        finally:
            engine.close()
        # What a call computes is bounded: rows by max_rows, the tokens of prompts by max_batch_tokens.
        assert all(num_rows <= max_rows for num_rows, _ in backend.calls)
        assert all(num_rows * num_new <= max_batch_tokens for num_rows, num_new in backend.reads)
        assert engine.stats().active_rows == 0

    asyncio.run(main())
