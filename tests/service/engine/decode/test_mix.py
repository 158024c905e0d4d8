"""The property that matters most: whatever else comes and goes, each request gets its own result."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.types import DecodingRequest, Hypothesis
from tests.service.engine.decode.toy import (
    BOS,
    EOS,
    MAX_TOKENS,
    VOCABULARY,
    ToyBackend,
    events_of,
    hypotheses_of,
    prompt_log_probs_of,
    request_of,
)

HEADERS = ((), (), tuple(range(3, 20)), tuple(range(3, 23)), tuple(range(20, 3, -1)))
"""Beginnings that prompts share, so that some rows are copies of others."""

tokens = st.integers(3, VOCABULARY - 1)


@st.composite
def samplings(draw: st.DrawFn) -> SamplingOptions:
    return SamplingOptions(
        do_sample=draw(st.booleans()),
        temperature=draw(st.sampled_from([0.5, 1.0, 1.5])),
        top_k=draw(st.sampled_from([0, 3, 9])),
        top_p=draw(st.sampled_from([1.0, 0.9])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.7])),
        seed=draw(st.integers(0, 1000)),
    )


@st.composite
def restrictions(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return {}
    return {
        "suppressed_ids": draw(st.sampled_from([(), (5,), (5, 6, 7, 8)])),
        "first_suppressed_ids": draw(st.sampled_from([(), (EOS,)])),
        "suppressed_sequences": draw(st.sampled_from([(), ((6, 7), (9,), (3, 4, 5))])),
        "no_repeat_ngram_size": draw(st.sampled_from([0, 0, 2])),
        "forces_end": draw(st.booleans()),
        "early_stopping": draw(st.sampled_from(["always", "heuristic", "never"])),
    }


@st.composite
def requests(draw: st.DrawFn, has_source: bool) -> DecodingRequest:
    prompt = (*draw(st.sampled_from(HEADERS)), *draw(st.lists(tokens, min_size=1, max_size=12)))
    source = None
    if has_source:
        source = tuple(draw(st.lists(tokens, min_size=1, max_size=20)))
        prompt = draw(st.sampled_from([(BOS,), (BOS,), (BOS,), (BOS, *prompt)]))
    options = {"max_new_tokens": draw(st.integers(1, min(24, MAX_TOKENS - len(prompt)))), **draw(restrictions())}
    if (beam_size := draw(st.sampled_from([1, 1, 1, 2, 3]))) > 1 or draw(st.booleans()):
        return request_of(
            prompt,
            source,
            beam_size=beam_size,
            num_hypotheses=draw(st.integers(1, beam_size)),
            length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0])),
            **options,
        )
    is_scored = draw(st.sampled_from([False, False, False, True]))
    if is_scored and draw(st.booleans()):
        options["max_new_tokens"] = 0
    return request_of(
        prompt,
        source,
        sampling=draw(samplings()),
        ignore_eos=draw(st.booleans()),
        top_n_tokens=draw(st.sampled_from([0, 0, 2])),
        wants_prompt_log_probs=is_scored,
        **options,
    )


def expected(request: DecodingRequest) -> list[Hypothesis]:
    """What a whole result must hold."""
    sampling = request.sampling
    if not (sampling.do_sample or sampling.changes_logits or request.wants_prompt_log_probs or request.top_n_tokens):
        return hypotheses_of(request)
    events = events_of(request)
    ended = bool(events) and events[-1].finish_reason == "eos_token"
    score = sum(event.log_prob for event in events) / max(1, len(events)) ** request.options.length_penalty
    return [Hypothesis(tuple(event.token_id for event in events[: len(events) - ended]), score, ended)]


class Visits:
    """Requests that come at given steps of the engine, and perhaps leave after some tokens."""

    def __init__(self, plan: list[tuple[int, DecodingRequest, bool, int | None]]) -> None:
        self.coming = sorted(plan, key=lambda visit: visit[0])
        self.num_steps = 0
        self.changed = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def on_step(self, number: int) -> None:
        self.loop.call_soon_threadsafe(self._count, number)

    def _count(self, number: int) -> None:
        self.num_steps = number
        self.changed.set()

    async def run(self, engine: DecodingEngine) -> None:
        """Until all have come and are answered; where the engine idles, the next one comes."""
        running: set[asyncio.Task[None]] = set()
        while self.coming or running:
            self.changed.clear()
            while self.coming and (not running or self.coming[0][0] <= self.num_steps):
                _, request, is_streamed, num_events = self.coming.pop(0)
                is_streamed = is_streamed and request.options.beam_size == 1
                visit = self._stream if is_streamed else self._whole
                task = asyncio.create_task(visit(engine, request, num_events))
                task.add_done_callback(lambda _: self.changed.set())
                running.add(task)
            await asyncio.wait_for(self.changed.wait(), 60)
            for task in {task for task in running if task.done()}:
                running.remove(task)
                task.result()

    @staticmethod
    async def _whole(engine: DecodingEngine, request: DecodingRequest, num_events: int | None) -> None:
        if num_events is not None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(engine.run([request]), 0.002 * num_events)
            return
        (result,) = await engine.run([request])
        wanted = expected(request)
        assert [found[::2] for found in result.hypotheses] == [best[::2] for best in wanted], request
        assert [found.score for found in result.hypotheses] == pytest.approx([best.score for best in wanted], abs=1e-5)

    @staticmethod
    async def _stream(engine: DecodingEngine, request: DecodingRequest, num_events: int | None) -> None:
        wanted = events_of(request)
        stream = await engine.open(request)
        found = []
        async for event in stream:
            found.append(event)
            if len(found) == num_events:
                await stream.aclose()
        assert found == wanted[: num_events or None]
        if request.wants_prompt_log_probs:
            scores = prompt_log_probs_of(request)
            assert stream.prompt_log_probs is not None
            assert [score.token_id for score in stream.prompt_log_probs] == [score.token_id for score in scores]
            for found_score, score in zip(stream.prompt_log_probs[1:], scores[1:], strict=True):
                assert found_score.log_prob == pytest.approx(score.log_prob, abs=1e-5)
                assert [token for token, _ in found_score.top_tokens] == [token for token, _ in score.top_tokens]


def plans(has_source: bool) -> st.SearchStrategy[list[tuple[int, DecodingRequest, bool, int | None]]]:
    visit = st.tuples(st.integers(0, 30), requests(has_source), st.booleans(), st.none() | st.integers(1, 6))
    return st.lists(visit, min_size=1, max_size=16)


@pytest.mark.parametrize("has_source", [False, True])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_each_request_gets_its_own_result_whatever_else_comes_and_goes(has_source: bool, data: st.DataObject) -> None:
    plan = data.draw(plans(has_source))
    limits = DecodingLimits(
        max_rows=data.draw(st.integers(3, 10)),
        greedy_steps=data.draw(st.sampled_from([1, 2, 5])),
        max_batch_tokens=data.draw(st.integers(20, 60)),
        max_prompt_batch_tokens=data.draw(st.sampled_from([1, 5, 16, 40, 200])),
        max_prefix_tokens=data.draw(st.sampled_from([1, 60, 10_000])),
        max_cache_bytes=data.draw(st.sampled_from([200, 10_000])),
        express_tokens=data.draw(st.sampled_from([1, 6, 15, 1000])),
        contended_tokens=data.draw(st.sampled_from([1, 20])),
    )
    num_loops, capacities = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([(), (8,), (6, 20, 30), (16, 32)]))
    backend = ToyBackend(max_source_tokens=20 * has_source)

    async def main() -> None:
        visits = Visits(plan)
        backend.on_step = visits.on_step
        engine = DecodingEngine(backend, limits, num_loops, capacities=capacities)
        engine.start()
        try:
            await visits.run(engine)
            assert await asyncio.to_thread(engine.drain, 60)
            assert engine.stats().is_alive
        finally:
            engine.close()
        # What a call computes is bounded: rows by max_rows, prompts and sources by their budgets.
        assert all(num_rows <= limits.max_rows for num_rows, _ in backend.calls)
        assert all(num_rows * num_new <= limits.max_prompt_batch_tokens for num_rows, num_new in backend.reads)
        assert all(count * longest <= limits.max_batch_tokens for count, longest in backend.encoded)
        assert engine.stats().active_rows == 0

    asyncio.run(main())
