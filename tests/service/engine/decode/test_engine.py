from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from service.engine.core.errors import (
    DeadlineError,
    InvalidOutputError,
    ModelUnavailableError,
    OverloadedError,
    RequestTooLargeError,
)
from service.engine.core.observer import NullObserver
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.stream import TokenStream
from service.engine.decode.types import DecodingRequest, Result, TokenEvent
from tests.service.engine.decode.toy import (
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


def test_newcomers_are_read_together_and_join_at_the_next_step() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend) as engine:
            first = await engine.open(long_request())
            await steps(backend, 1)
            others = [await engine.open(long_request(prompt=(*PROMPT, *range(3, 3 + size)))) for size in (1, 5)]
            backend.allow(2)
            await steps(backend, 3)
            assert backend.calls == [(1, 2), (1, 1), (2, 7), (3, 1), (3, 1)]
            backend.allow()
            for stream in (first, *others):
                assert await read(stream) == events_of(stream.request)
                assert stream.queue_seconds is not None
                assert stream.prompt_log_probs is None

    run(main)


def test_the_first_token_is_there_before_the_first_step() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend) as engine:
            stream = await engine.open(long_request())
            assert await anext(stream) == events_of(stream.request)[0]

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
    ("num_tokens", "most_logits", "pieces"),
    [(1, 1000, [1]), (10, 1000, [10]), (20, 1000, [16, 4]), (10, 4 * VOCABULARY, [4, 4, 2]), (3, 1, [1, 1, 1])],
)
def test_a_scored_prompt_is_read_in_pieces_of_tokens_and_of_logits(
    monkeypatch: pytest.MonkeyPatch, num_tokens: int, most_logits: int, pieces: list[int], max_new_tokens: int
) -> None:
    monkeypatch.setattr("service.engine.decode.loop._MAX_LOGITS", most_logits)
    request = scored_request(num_tokens, max_new_tokens)

    async def main() -> None:
        backend = ToyBackend()
        async with engine_of(backend, max_prompt_batch_tokens=16) as engine:
            stream = await engine.open(request)
            assert await read(stream) == events_of(request)
            assert engine.stats().generated_tokens == max_new_tokens
        assert [num_new for _, num_new in backend.calls[: len(pieces)]] == pieces
        assert len(backend.calls) == len(pieces) + max(0, max_new_tokens - 1)
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


def test_a_long_prompt_is_read_in_pieces_between_the_steps_of_others() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend, max_prompt_batch_tokens=8) as engine:
            running = await engine.open(long_request())
            await steps(backend, 1)
            prompt = tuple(range(3, 23))
            long = await engine.open(request_of(prompt=prompt, max_new_tokens=4))
            backend.allow(4)
            await steps(backend, 5)
            assert backend.calls[1:] == [(1, 1), (1, 8), (1, 1), (1, 8), (1, 1), (1, 4), (1, 1), (1, 1)]
            backend.allow()
            assert await read(long) == events_of(long.request)
            assert await read(running) == events_of(running.request)

    run(main)


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
        assert backend.reads == [(1, 18)]

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
            with pytest.raises(OverloadedError, match="1 texts of 2 tokens are waiting, allowed: 1 texts"):
                await engine.open(long_request())
            await leaving.aclose()
            await leaving.aclose()
            assert [event async for event in leaving] == []
            backend.allow(1)
            await steps(backend, 3)
            assert engine.stats().waiting_requests == 0
            backend.allow()
            assert await read(staying) == await read(waiting) == events_of(long_request())
            assert backend.calls[:6] == [(1, 2), (1, 1), (1, 2), (2, 1), (1, 2), (2, 1)]

    run(main)


def test_who_leaves_the_line_makes_room_for_others() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend, max_rows=1, max_waiting_requests=1) as engine:
            running = await engine.open(long_request())
            await steps(backend, 1)
            leaving = await engine.open(long_request())
            await leaving.aclose()
            assert engine.stats().waiting_requests == 0
            joining = await engine.open(long_request())
            backend.allow()
            assert await read(running) == await read(joining) == events_of(long_request())

    run(main)


def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    async def main() -> None:
        async with engine_of(ToyBackend()) as engine:
            slow, quick = [await engine.open(long_request()) for _ in range(2)]
            assert await read(quick) == events_of(quick.request)
            assert await asyncio.to_thread(engine.drain, 60)
            assert await read(slow) == events_of(slow.request)

    run(main)


def test_a_deadline_that_passes_in_the_line_and_one_that_passes_at_work() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend, max_rows=1) as engine:
            deadline = time.monotonic() + 1
            running = await engine.open(long_request(deadline=deadline))
            await steps(backend, 1)
            waiting = await engine.open(long_request(deadline=time.monotonic()))
            backend.allow(1)
            with pytest.raises(DeadlineError, match=r"passed before it was begun, \d"):
                await anext(waiting)
            await asyncio.sleep(max(0.0, deadline - time.monotonic()))
            backend.allow()
            expected = events_of(running.request)
            assert [await anext(running) for _ in range(3)] == expected[:3]
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


@pytest.mark.parametrize("num_loops", [1, 2])
def test_a_loop_that_dies_fails_everything_and_refuses_more(num_loops: int) -> None:
    async def main() -> None:
        def fail(number: int) -> None:
            if number >= 3:
                raise RuntimeError("the device is gone")

        backend = ToyBackend(fail)
        backend.hold()
        async with engine_of(backend, num_loops, max_rows=2) as engine:
            streams = [await engine.open(long_request()) for _ in range(9)]
            searching = asyncio.create_task(search(engine, long_request(beam_size=2)))
            await steps(backend, 1)
            backend.allow()
            for awaitable in (*map(read, streams), searching):
                with pytest.raises(ModelUnavailableError, match="failed while the request was in work: the device"):
                    await awaitable
            with pytest.raises(ModelUnavailableError, match="an engine thread failed: the device is gone"):
                await engine.open(long_request())
            assert not engine.stats().is_alive
            assert engine.drain(0)

    run(main)


def test_draining_answers_what_was_accepted_and_closing_fails_the_rest() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend, max_rows=2) as engine:
            streams = [await engine.open(long_request()) for _ in range(5)]
            await steps(backend, 1)
            assert not engine.drain(0.01)
            with pytest.raises(ModelUnavailableError, match="the server is shutting down"):
                await engine.open(long_request())
            backend.allow()
            assert await asyncio.to_thread(engine.drain, 60)
            for stream in streams:
                assert await read(stream) == events_of(stream.request)
        async with engine_of(backend := ToyBackend(), max_rows=1) as engine:
            backend.hold()
            streams = [await engine.open(long_request()) for _ in range(2)]
            await steps(backend, 1)
            closing = asyncio.create_task(asyncio.to_thread(engine.close))
            for stream in streams:
                with pytest.raises(ModelUnavailableError, match="closed before the request was finished"):
                    await read(stream)
            backend.allow()
            await closing

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
            with pytest.raises(ValueError, match="beam_size is 3, allowed: 1 to 2"):
                await search(engine, long_request(beam_size=3))

    run(main)


def test_a_search_that_is_cancelled_gives_its_rows_back() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        async with engine_of(backend, max_rows=4) as engine:
            request = long_request(beam_size=4, max_new_tokens=8)
            searching = asyncio.create_task(search(engine, request))
            await steps(backend, 1)
            searching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await searching
            other = asyncio.create_task(search(engine, request))
            await asyncio.sleep(0)
            backend.allow()
            result = await other
            assert list(result.hypotheses) == hypotheses_of(request)
            assert result.num_input_tokens == 2
            assert result.queue_seconds >= 0
            assert result.inference_seconds > 0

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
    ("request_", "error", "message"),
    [
        (long_request(prompt=(5, 24)), ValueError, "prompt_ids holds 24, allowed: 0 to 23"),
        (long_request(prompt=(-1,)), ValueError, "prompt_ids holds -1, allowed: 0 to 23"),
        (
            long_request(sampling=SamplingOptions(logit_bias=((30, 1.0),))),
            ValueError,
            "logit_bias holds 30, allowed: 0 to 23",
        ),
        (long_request(top_n_tokens=9), ValueError, "top_n_tokens is 9, allowed: 0 to 8"),
        (long_request(beam_size=2), ValueError, "a beam search cannot be streamed"),
        (long_request(prompt=()), RequestTooLargeError, "prompt of 0 tokens: there is nothing to continue"),
        (
            long_request(max_new_tokens=64),
            RequestTooLargeError,
            "prompt of 2 tokens and 64 new tokens exceed the model's 64 positions",
        ),
        (
            long_request(max_new_tokens=50),
            RequestTooLargeError,
            "prompt of 2 tokens and 50 new tokens in 1 rows take 51 bytes of the cache, which holds 40",
        ),
    ],
)
def test_what_could_never_run_is_refused_at_once(
    request_: DecodingRequest, error: type[Exception], message: str
) -> None:
    engine = DecodingEngine(ToyBackend(), DecodingLimits(max_cache_bytes=40))
    with pytest.raises(error, match=message):
        asyncio.run(engine.open(request_))
    assert engine.stats().waiting_requests == 0


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (long_request(beam_size=5), ValueError, "beam_size is 5, allowed: 1 to 4"),
        (long_request(beam_size=3), ValueError, "beam_size is 3, allowed: 1 to 2"),
        (long_request(source=(5,)), ValueError, "source_ids must not be given for this model"),
    ],
)
def test_searches_that_could_never_run(request_: DecodingRequest, error: type[Exception], message: str) -> None:
    engine = DecodingEngine(ToyBackend(), DecodingLimits(max_rows=2 if request_.options.beam_size == 3 else 64))
    with pytest.raises(error, match=message):
        asyncio.run(search(engine, request_))


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


def test_no_loops() -> None:
    with pytest.raises(ValueError, match="num_loops is 0; it must be at least 1"):
        DecodingEngine(ToyBackend(), num_loops=0)


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
