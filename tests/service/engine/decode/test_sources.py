"""What a source changes: whose memory a row reads, what prefixes may share, and what is given back."""

from __future__ import annotations

import asyncio
import time

import pytest

from service.engine.core.errors import RequestTooLargeError
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.types import DecodingRequest, Result
from tests.service.engine.decode.toy import BOS, ToyBackend, events_of, hypotheses_of, request_of, source_that_lasts

PREFIX = (BOS, *range(3, 23))
"""A begin token and a forced prefix of 20."""


def run(requests: list[DecodingRequest], **limits: int) -> tuple[list[Result], ToyBackend]:
    backend = ToyBackend(max_source_tokens=20)
    engine = DecodingEngine(backend, DecodingLimits(**limits), capacities=(8, 30))
    engine.start()
    try:
        return [engine.submit(request).result(60) for request in requests], backend
    finally:
        engine.close()


@pytest.mark.parametrize("beam_size", [1, 3])
def test_two_sources_with_one_forced_prefix_share_nothing_of_it(beam_size: int) -> None:
    # One after the other, so that the first is finished and could have been kept when the second begins.
    requests = [request_of(PREFIX, source, beam_size=beam_size, max_new_tokens=12) for source in ((5, 6), (7, 8, 9))]
    results, backend = run(requests)
    expected = [hypotheses_of(request)[0].token_ids for request in requests]
    assert [result.best.token_ids for result in results] == expected
    assert sum(num_rows * num_new for num_rows, num_new in backend.reads) == 2 * len(PREFIX)


def test_two_sources_with_one_forced_prefix_at_once() -> None:
    async def main() -> None:
        backend = ToyBackend(max_source_tokens=20)
        engine = DecodingEngine(backend, capacities=(8, 30))
        engine.start()
        try:
            requests = [request_of(PREFIX, source, max_new_tokens=12) for source in ((5, 6), (7, 8, 9), (5, 6))]
            streams = [await engine.open(request) for request in requests]
            for stream in streams:
                assert [event async for event in stream] == events_of(stream.request)
        finally:
            await asyncio.to_thread(engine.close)

    asyncio.run(main())


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_cancelled_request_frees_its_rows_and_its_memory(beam_size: int) -> None:
    backend = ToyBackend(max_source_tokens=20)
    backend.hold()
    engine = DecodingEngine(backend, DecodingLimits(max_rows=8), capacities=(4, 30))
    engine.start()
    try:
        request = request_of((BOS,), source_that_lasts(8, beam_size), beam_size=beam_size, max_new_tokens=20)
        leaving = engine.submit(request)
        backend.wait_for_step(1)
        table = backend.tables[-1]
        assert table.sources[0] is not None
        # One that is too long for the other's table, so that its own may be released.
        other = request_of(PREFIX, (5,) * 12, max_new_tokens=9, ignore_eos=True)
        staying = engine.submit(other)
        leaving.cancel()
        backend.allow()
        assert staying.result(60).best.token_ids == hypotheses_of(other)[0].token_ids
        end = time.monotonic() + 60
        while engine.stats().active_rows:
            assert time.monotonic() < end
            time.sleep(0.002)
        assert len(table.cache) == 0  # released
    finally:
        backend.allow()
        engine.close()


def test_a_request_waits_for_bytes_and_one_that_could_never_have_them_is_refused() -> None:
    request = request_of((BOS,), (5, 6, 7), beam_size=2, max_new_tokens=10)  # 2 x 10 positions and 3 of its source
    results, _ = run([request] * 3, max_cache_bytes=23)
    assert [result.best.token_ids for result in results] == [hypotheses_of(request)[0].token_ids] * 3
    with pytest.raises(RequestTooLargeError, match=r"\b23 bytes of the cache\b"):
        run([request], max_cache_bytes=22)


@pytest.mark.parametrize("changes", [{"no_repeat_ngram_size": 2}, {"beam_size": 3, "no_repeat_ngram_size": 2}])
def test_tokens_that_a_model_never_chooses_are_not_chosen_by_logits_either(changes: dict[str, int]) -> None:
    source = source_that_lasts(8)
    free, _ = run([request_of((BOS,), source, max_new_tokens=12, **changes)])
    suppressed = frozenset(free[0].best.token_ids[:3])
    backend = ToyBackend(max_source_tokens=20)
    backend.suppressed_ids = tuple(suppressed)
    engine = DecodingEngine(backend)
    engine.start()
    try:
        found = engine.submit(request_of((BOS,), source, max_new_tokens=12, **changes)).result(60)
        drawn = [SamplingOptions(do_sample=True, temperature=3.0, seed=seed) for seed in range(5)]
        sampled = [
            engine.submit(request_of((BOS,), source, max_new_tokens=12, ignore_eos=True, sampling=each)).result(60)
            for each in drawn
        ]
    finally:
        engine.close()
    for result in (found, *sampled):
        assert result.best.token_ids
        assert suppressed.isdisjoint(result.best.token_ids)
