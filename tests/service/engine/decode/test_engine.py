from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.core.errors import (
    DeadlineError,
    InvalidOutputError,
    OverloadedError,
)
from service.engine.core.observer import NullObserver
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.stream import TokenStream
from service.engine.decode.types import DecodingRequest, Result, TokenEvent
from tests.service.engine.decode.toy import (
    BOS,
    EOS,
    MAX_TOKENS,
    VOCABULARY,
    ToyBackend,
    events_of,
    hypotheses_of,
    logits_of,
    prompt_log_probs_of,
    prompt_that_lasts,
    request_of,
)

LONG = 30
PROMPT = prompt_that_lasts(LONG)


def long_request(**changes: Any) -> DecodingRequest:
    values: dict[str, Any] = {"prompt": PROMPT, "max_new_tokens": LONG}
    return request_of(**values | changes)


@asynccontextmanager
async def engine_of(
    backend: ToyBackend, num_loops: int = 1, observer: NullObserver | None = None, **limits: int
) -> AsyncIterator[DecodingEngine]:
    engine = DecodingEngine(backend, DecodingLimits(**limits), num_loops, observer, capacities=(16, 32))
    engine.start()
    try:
        yield engine
    finally:
        backend.allow()
        await asyncio.to_thread(engine.close)


async def read(stream: TokenStream) -> list[TokenEvent]:
    return [event async for event in stream]


async def search(engine: DecodingEngine, request: DecodingRequest) -> Result:
    return (await engine.run([request]))[0]


async def steps(backend: ToyBackend, number: int) -> None:
    """Until step `number` (from 1) stands at its beginning."""
    await asyncio.to_thread(backend.wait_for_step, number)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main(), 60)

    asyncio.run(bounded())


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=12),
    st.integers(1, 30),
    st.sampled_from([(), (16, 32)]),
)
def test_a_stream_that_runs_gets_a_token_between_any_two_pieces_of_prompts(
    lengths: list[int], max_prompt_batch_tokens: int, capacities: tuple[int, ...]
) -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        limits = DecodingLimits(max_prompt_batch_tokens=max_prompt_batch_tokens)
        engine = DecodingEngine(backend, limits, capacities=capacities)
        engine.start()
        try:
            first = await engine.open(long_request())
            await steps(backend, 1)
            backend.calls.clear()
            tails = [tuple(3 + (number + place) % 20 for place in range(size)) for number, size in enumerate(lengths)]
            others = [await engine.open(long_request(prompt=(*PROMPT, *tail), ignore_eos=True)) for tail in tails]
            backend.allow()
            for stream in (first, *others):
                assert await read(stream) == events_of(stream.request)
                assert stream.prompt_log_probs is None
        finally:
            await asyncio.to_thread(engine.close)
        num_steps = 0
        for (_, num_new), (_, next_new) in itertools.pairwise(backend.calls):
            num_steps += num_new == 1
            assert num_new == 1 or next_new == 1 or num_steps >= LONG - 1
        # All advance together: a step for each token of one output, and one between any two pieces, which may be steps
        # themselves where they have one token.
        prompts = [len(PROMPT), *(len(PROMPT) + length for length in lengths)]
        most_pieces = sum(-(-length // max_prompt_batch_tokens) for length in prompts)
        assert backend.num_steps <= (LONG + 2 * most_pieces) * (1 + len(capacities))

    run(main)


def test_the_first_token_is_there_before_the_first_step() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend) as engine:
            stream = await engine.open(long_request())
            assert await anext(stream) == events_of(stream.request)[0]

    run(main)


@pytest.mark.parametrize(("greedy_steps", "least"), [(1, LONG), (4, LONG // 4), (100, 2)])
def test_several_greedy_steps_are_run_between_two_looks(greedy_steps: int, least: int) -> None:
    async def main() -> None:
        backend = ToyBackend()
        async with engine_of(backend, greedy_steps=greedy_steps) as engine:
            request = long_request()
            assert (await search(engine, request)).hypotheses == tuple(hypotheses_of(request))
            # One more where the table for texts of up to 16 tokens ends.
            assert least - 1 <= (backend.num_greedy_calls or LONG) <= least + 1
            stats = engine.stats()
            assert (stats.generated_tokens, stats.steps) == (LONG, LONG - 1)  # the prompt gave the first

    run(main)


@pytest.mark.parametrize("changes", [{"beam_size": 2}, {"suppressed_ids": (5,)}, {"top_n_tokens": 2}])
def test_what_must_be_looked_at_is_decoded_step_by_step(changes: dict[str, Any]) -> None:
    async def main() -> None:
        backend = ToyBackend()
        async with engine_of(backend, greedy_steps=4) as engine:
            await search(engine, long_request(**changes))
            await read(await engine.open(long_request()))
            assert backend.num_greedy_calls == 0

    run(main)


def test_tokens_behind_an_end_are_cut_off() -> None:
    async def main() -> None:
        backend = ToyBackend(max_source_tokens=MAX_TOKENS)
        requests = [request_of((BOS,), (3 + number, 9), max_new_tokens=20) for number in range(12)]
        async with engine_of(backend, greedy_steps=8) as engine:
            results = await engine.run(requests)
            expected = [hypotheses_of(request)[0] for request in requests]
            assert [result.best.token_ids for result in results] == [best.token_ids for best in expected]
            assert [result.best.score for result in results] == pytest.approx([best.score for best in expected])
            lengths = [len(best.token_ids) + best.finished for best in expected]
            assert min(lengths) < max(lengths)
            stats = engine.stats()
            assert stats.generated_tokens == sum(lengths) < sum(backend.rows_of_steps)

    run(main)


def scored_request(num_tokens: int, max_new_tokens: int) -> DecodingRequest:
    return request_of(
        prompt=tuple(3 + place % 20 for place in range(num_tokens)),
        max_new_tokens=max_new_tokens,
        top_n_tokens=2,
        wants_prompt_log_probs=True,
    )


@pytest.mark.parametrize("max_new_tokens", [0, 2])
@pytest.mark.parametrize(
    ("num_tokens", "most_logits", "largest"),
    [(1, 1000, 16), (10, 1000, 16), (20, 1000, 16), (10, 4 * VOCABULARY, 4), (3, 1, 1)],
)
def test_a_scored_prompt_is_read_in_pieces_of_tokens_and_of_logits(
    monkeypatch: pytest.MonkeyPatch, num_tokens: int, most_logits: int, largest: int, max_new_tokens: int
) -> None:
    monkeypatch.setattr("service.engine.decode.loop._MAX_LOGITS", most_logits)
    request = scored_request(num_tokens, max_new_tokens)

    async def main() -> None:
        backend = ToyBackend()
        async with engine_of(backend, max_prompt_batch_tokens=16) as engine:
            stream = await engine.open(request)
            assert await read(stream) == events_of(request)
            assert engine.stats().generated_tokens == max_new_tokens
        pieces = [num_new for _, num_new in backend.calls]
        assert sum(pieces) == num_tokens + max(0, max_new_tokens - 1)
        assert max(pieces) == min(largest, num_tokens)
        assert stream.prompt_log_probs is not None
        expected = prompt_log_probs_of(request)
        assert [token[0] for token in stream.prompt_log_probs] == [token[0] for token in expected]
        for found, scored in zip(stream.prompt_log_probs[1:], expected[1:], strict=True):
            assert found.log_prob == pytest.approx(scored.log_prob, abs=1e-5)
            assert [token for token, _ in found.top_tokens] == [token for token, _ in scored.top_tokens]

    asyncio.run(main())


def test_the_likeliest_token_of_a_prompt_has_the_score_of_the_first_of_its_place() -> None:
    # Evaluation harnesses compare the two numbers to see whether greedy decoding would have written the same.
    written = [event.token_id for event in events_of(long_request())]
    request = request_of(prompt=(*PROMPT, *written), max_new_tokens=0, top_n_tokens=1, wants_prompt_log_probs=True)

    async def main() -> None:
        async with engine_of(ToyBackend()) as engine:
            stream = await engine.open(request)
            assert await read(stream) == []
        assert stream.prompt_log_probs is not None
        for scored in stream.prompt_log_probs[len(PROMPT) :]:
            assert scored.top_tokens == ((scored.token_id, scored.log_prob),)

    asyncio.run(main())


def test_a_prompt_as_long_as_the_context_is_scored() -> None:
    async def main() -> None:
        async with engine_of(ToyBackend()) as engine:
            stream = await engine.open(scored_request(MAX_TOKENS, 0))
            assert await read(stream) == []
            assert stream.prompt_log_probs is not None
            assert len(stream.prompt_log_probs) == MAX_TOKENS

    asyncio.run(main())


def test_a_scored_prompt_is_read_alone_and_whole() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend) as engine:
            running = await engine.open(long_request())
            await steps(backend, 1)
            requests = [long_request(), scored_request(9, 3), long_request()]
            streams = [await engine.open(request) for request in requests]
            backend.allow()
            found = [await read(stream) for stream in streams]
            assert found == [events_of(request) for request in requests]
            assert await read(running) == events_of(long_request())
        assert (1, 9) in backend.calls

    asyncio.run(main())


class Hits(NullObserver):
    def __init__(self) -> None:
        self.prompts: list[tuple[int, int]] = []
        self.num_new_tokens = 0

    def on_prompt(self, num_tokens: int, num_reused_tokens: int, num_new_tokens: int) -> None:
        self.prompts.append((num_tokens, num_reused_tokens))
        self.num_new_tokens += num_new_tokens

    def on_step(self, num_rows: int, num_new_tokens: int, num_padded_tokens: int) -> None:
        self.num_new_tokens += num_new_tokens


HEADER = tuple(range(3, 21))


@pytest.mark.parametrize(("max_prefix_tokens", "num_reused"), [(1000, 18), (1, 0)])
def test_a_prompt_reuses_what_a_finished_one_left(max_prefix_tokens: int, num_reused: int) -> None:
    async def main() -> None:
        hits = Hits()
        async with engine_of(ToyBackend(), observer=hits, max_prefix_tokens=max_prefix_tokens) as engine:
            num_tokens = 0
            for tail in ((5, 6), (7, 8, 9), (5, 6)):
                request = request_of(prompt=(*HEADER, *tail), max_new_tokens=5)
                found = await read(await engine.open(request))
                assert found == events_of(request)
                num_tokens += len(found)
        # The third prompt is the first one again, and only its last token must be read.
        reused_of_all = 19 if num_reused else 0
        assert hits.prompts == [(20, 0), (21, num_reused), (20, reused_of_all)]
        assert hits.num_new_tokens == num_tokens

    run(main)


def test_the_next_turn_of_a_conversation_reuses_the_answer_too() -> None:
    async def main() -> None:
        hits = Hits()
        async with engine_of(ToyBackend(), observer=hits) as engine:
            first = request_of(prompt=HEADER, max_new_tokens=6, ignore_eos=True)
            answer = [event.token_id for event in await read(await engine.open(first))]
            second = request_of(prompt=(*HEADER, *answer, 7), max_new_tokens=3)
            assert await read(await engine.open(second)) == events_of(second)
        assert hits.prompts == [(18, 0), (25, 23)]  # the last token of the answer never entered the cache

    run(main)


def test_equal_prompts_that_come_together_are_read_once() -> None:
    async def main() -> None:
        backend, hits = ToyBackend(), Hits()
        async with engine_of(backend, observer=hits, max_prefix_tokens=1) as engine:
            requests = [
                request_of(
                    prompt=HEADER,
                    max_new_tokens=9,
                    ignore_eos=True,
                    sampling=SamplingOptions(do_sample=True, seed=seed),
                )
                for seed in range(4)
            ]
            streams = [await engine.open(request) for request in requests]
            for stream in streams:
                assert await read(stream) == events_of(stream.request)
        assert sorted(hits.prompts) == [(18, 0), (18, 17), (18, 17), (18, 17)]
        assert sum(num_rows * num_new for num_rows, num_new in backend.reads) == len(HEADER)

    run(main)


def test_leaving_frees_the_row_at_the_next_step() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend, max_rows=2, max_waiting_requests=1) as engine:
            staying = await engine.open(long_request())
            await steps(backend, 1)
            leaving = await engine.open(long_request())
            backend.allow(1)
            await steps(backend, 2)
            waiting = await engine.open(long_request())
            with pytest.raises(OverloadedError):
                await engine.open(long_request())
            await leaving.aclose()
            await leaving.aclose()
            assert [event async for event in leaving] == []
            backend.allow(1)
            await steps(backend, 3)
            assert engine.stats().waiting_requests == 0
            backend.allow()
            assert await read(staying) == await read(waiting) == events_of(long_request())

    run(main)


def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    async def main() -> None:
        async with engine_of(ToyBackend()) as engine:
            slow, quick = [await engine.open(long_request()) for _ in range(2)]
            assert await read(quick) == events_of(quick.request)
            assert await asyncio.to_thread(engine.drain, 60)
            assert await read(slow) == events_of(slow.request)

    run(main)


def test_a_deadline_that_passes_at_work_ends_the_stream_after_the_tokens_that_were_there() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend, max_rows=1) as engine:
            deadline = time.monotonic() + 0.2
            running = await engine.open(long_request(deadline=deadline))
            await steps(backend, 1)
            backend.allow(1)
            await steps(backend, 2)
            await asyncio.sleep(max(0.0, deadline - time.monotonic()))
            backend.allow()
            assert [await anext(running) for _ in range(3)] == events_of(running.request)[:3]
            with pytest.raises(DeadlineError, match=r"passed after \d+ tokens, \d"):
                await read(running)
            with pytest.raises(StopAsyncIteration):
                await anext(running)

    run(main)


def test_positions_are_reserved_so_that_no_stream_waits_half_way() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend, max_rows=8, max_cache_bytes=2 * (LONG + 1)) as engine:
            streams = [await engine.open(long_request()) for _ in range(3)]
            await steps(backend, 1)
            await steps(backend, 1)
            backend.allow(3)
            await steps(backend, 4)
            assert engine.stats().waiting_requests == 1
            assert engine.stats().active_rows == 2
            backend.allow()
            for stream in streams:
                assert await read(stream) == events_of(stream.request)

    run(main)


def test_what_is_not_a_number_fails_its_own_request_alone() -> None:
    async def main() -> None:
        backend = ToyBackend()
        broken = np.full(24, np.nan, np.float32)
        backend.logits = lambda prefix, _: broken if prefix[0] == 9 and len(prefix) > 4 else logits_of(prefix)
        async with engine_of(backend) as engine:
            sampling = SamplingOptions(do_sample=True, seed=3)
            healthy = await engine.open(long_request(sampling=sampling))
            bad = await engine.open(long_request(prompt=(9, 9), sampling=sampling, ignore_eos=True))
            with pytest.raises(InvalidOutputError, match="the model's output is not a number"):
                await read(bad)
            assert await read(healthy) == events_of(healthy.request)
            assert engine.stats().is_alive

    run(main)


def test_several_end_tokens() -> None:
    async def main() -> None:
        backend = ToyBackend()
        ends = events_of(long_request())[3].token_id
        backend.eos_ids = (EOS, ends)
        async with engine_of(backend) as engine:
            found = await read(await engine.open(long_request()))
            assert [event.token_id for event in found][-1] == ends
            assert found[-1].finish_reason == "eos_token"
            assert len(found) <= 4
            result = await search(engine, long_request(beam_size=2, num_hypotheses=2))
            assert all(ends not in hypothesis.token_ids for hypothesis in result.hypotheses)
            with pytest.raises(ValueError, match=r"beam_size is 3\b"):
                await search(engine, long_request(beam_size=3))

    run(main)


def test_an_event_loop_that_has_closed_takes_its_requests_along() -> None:
    backend = ToyBackend()
    backend.hold()
    engine = DecodingEngine(backend, capacities=())
    engine.start()

    async def leave() -> None:
        await engine.open(long_request())
        await steps(backend, 1)

    try:
        asyncio.run(leave())
        backend.allow()
        assert engine.drain(60)
        assert engine.stats().is_alive
        assert backend.calls.count((1, 1)) < LONG - 1
    finally:
        engine.close()


def test_the_event_loop_is_woken_once_for_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        backend = ToyBackend()
        loop = asyncio.get_running_loop()
        num_calls, woken = 0, loop.call_soon_threadsafe

        def count(*arguments: Any, **more: Any) -> Any:
            nonlocal num_calls
            num_calls += threading.current_thread().name.startswith("engine")
            return woken(*arguments, **more)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        backend.hold()
        async with engine_of(backend) as engine:
            streams = [await engine.open(long_request(prompt=(*PROMPT, 3 + place))) for place in range(8)]
            backend.allow()
            found = [await read(stream) for stream in streams]
        num_steps = sum(1 for call in backend.calls if call[1] == 1)
        assert sum(map(len, found)) > 2 * num_steps
        assert num_calls <= len(backend.calls) + len(streams)

    run(main)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be at least 1"),
        ({"max_new_tokens": -1, "wants_prompt_log_probs": True}, "max_new_tokens is -1; it must be at least 0"),
        ({"top_n_tokens": -1}, "top_n_tokens is -1; it must be at least 0"),
        ({"beam_size": 0}, "beam_size is 0; it must be at least 1"),
        ({"num_hypotheses": 2}, "num_hypotheses is 2; it must lie between 1 and beam_size"),
        (
            {"beam_size": 2, "sampling": SamplingOptions(do_sample=True)},
            "beam_size is 2; beam search goes with neither",
        ),
        ({"beam_size": 2, "top_n_tokens": 1}, "beam_size is 2; beam search goes with neither"),
    ],
)
def test_requests_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        long_request(**changes)


def test_a_beam_search_is_not_streamed() -> None:
    with pytest.raises(ValueError, match=r"beam_size is 2\b"):
        asyncio.run(DecodingEngine(ToyBackend()).open(long_request(beam_size=2)))


def test_the_model_is_never_asked_beyond_its_positions() -> None:
    async def main() -> None:
        async with engine_of(ToyBackend(), max_prompt_batch_tokens=200) as engine:
            full = tuple(3 + place % 20 for place in range(MAX_TOKENS - 1))
            requests = [
                request_of(prompt=full, max_new_tokens=1),
                request_of(prompt=full[:-3], max_new_tokens=4, ignore_eos=True),
                request_of(prompt=(7, *full[1:40]), max_new_tokens=24, ignore_eos=True),
            ]
            for _ in range(2):  # the second time with most of each prompt in the cache already
                streams = [await engine.open(request) for request in requests]
                for stream in streams:
                    assert await read(stream) == events_of(stream.request)

    run(main)
