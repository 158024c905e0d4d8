from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.encode.embedding_engine import EmbeddingEngine
from service.engine.encode.embedding_line import EmbeddingLimits
from tests.service.engine.toy_encoder import MAX_TOKENS, VOCABULARY, ToyEncoder, vectors


@contextmanager
def running(backend: ToyEncoder, num_loops: int = 1, **limits: int) -> Iterator[EmbeddingEngine]:
    engine = EmbeddingEngine(backend, EmbeddingLimits(**limits), num_loops)
    engine.start()
    try:
        yield engine
    finally:
        backend.allow()
        engine.close()


def request(num_tokens: int = 3, **fields: Any) -> EmbeddingRequest:
    return EmbeddingRequest(tuple(range(1, num_tokens + 1)), **fields)


def assert_right(results: list[EmbeddingResult], requests: list[EmbeddingRequest]) -> None:
    for result, made in zip(results, requests, strict=True):
        np.testing.assert_array_equal(result.values, vectors(made))
        assert result.num_input_tokens == made.num_tokens
        assert result.queue_seconds >= 0
        assert result.inference_seconds >= 0


def random_requests(seed: int, count: int) -> list[EmbeddingRequest]:
    chance = random.Random(seed)
    requests = []
    for _ in range(count):
        ids = tuple(chance.randrange(1, VOCABULARY) for _ in range(chance.randint(1, MAX_TOKENS)))
        types = tuple(chance.randrange(2) for _ in ids) if chance.random() < 0.3 else None
        requests.append(EmbeddingRequest(ids, chance.random() < 0.3, token_type_ids=types))
    return requests


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 30)), max_size=6),
    st.integers(MAX_TOKENS, 200),
    st.integers(1, 50),
    st.integers(1, 3),
)
def test_each_request_gets_its_own_result_in_order(
    calls: list[tuple[int, int]], max_batch_tokens: int, overhead_tokens: int, num_loops: int
) -> None:
    requests, backend = [random_requests(seed, count) for seed, count in calls], ToyEncoder()
    limits = {"max_batch_tokens": max_batch_tokens, "overhead_tokens": overhead_tokens}

    async def main(engine: EmbeddingEngine) -> None:
        for results, call in zip(await asyncio.gather(*map(engine.run, requests)), requests, strict=True):
            assert_right(results, call)

    with running(backend, num_loops, **limits) as engine:
        asyncio.run(main(engine))
        assert engine.drain(60)
        computed = sum(max(lengths) * len(lengths) for lengths in backend.lengths_of_batches)
        real = sum(map(sum, backend.lengths_of_batches))
        assert engine.stats().padding_share == pytest.approx((computed - real) / computed if computed else 0)
    assert all(max(lengths) * len(lengths) <= max_batch_tokens for lengths in backend.lengths_of_batches)
    assert backend.most_at_once <= num_loops


def test_inputs_of_the_longest_length_and_of_one_token() -> None:
    requests = [request(MAX_TOKENS), request(1), request(MAX_TOKENS, wants_tokens=True), request(1, wants_tokens=True)]
    with running(ToyEncoder(), max_batch_tokens=MAX_TOKENS, max_waiting_tokens=2 * MAX_TOKENS + 2) as engine:
        assert_right(asyncio.run(engine.run(requests)), requests)


def test_pooled_vectors_and_those_of_tokens_do_not_share_a_batch() -> None:
    backend = ToyEncoder()
    backend.hold()
    with running(backend) as engine:
        first = engine.submit(request())
        backend.wait_for_step(1)
        others = [engine.submit(request(3, wants_tokens=number % 2 == 0)) for number in range(6)]
        backend.allow()
        for future in [first, *others]:
            future.result(60)
    assert sum(len(lengths) for lengths in backend.lengths_of_batches) == 7
    batches = list(zip(backend.lengths_of_batches, backend.kinds, strict=True))
    by_kind = [sum(len(lengths) for lengths, kind in batches if kind is wanted) for wanted in (False, True)]
    assert by_kind == [4, 3]


def test_an_idle_engine_runs_what_comes_at_once() -> None:
    """One text is not held back for company, whatever the budget."""
    backend = ToyEncoder()
    with running(backend) as engine:
        for number in range(5):
            engine.submit(request()).result(60)
            assert len(backend.lengths_of_batches) == number + 1


def test_what_comes_while_a_batch_runs_shares_the_next_one() -> None:
    backend = ToyEncoder()
    backend.hold()
    with running(backend) as engine:
        futures = [engine.submit(request())]
        backend.wait_for_step(1)
        futures += [engine.submit(request()) for _ in range(7)]
        assert engine.stats().waiting_requests == 7
        backend.allow()
        for future in futures:
            future.result(60)
    assert len(backend.lengths_of_batches) == 2


def until(engine: EmbeddingEngine, waiting: int) -> None:
    end = time.monotonic() + 60
    while engine.stats().waiting_requests != waiting:
        assert time.monotonic() < end
        threading.Event().wait(0.001)


def test_a_full_batch_is_formed_while_another_runs() -> None:
    backend = ToyEncoder()
    backend.hold()
    with running(backend, max_batch_tokens=40) as engine:
        futures = [engine.submit(request(10))]
        backend.wait_for_step(1)
        futures += [engine.submit(request(10)) for _ in range(3)]
        assert engine.stats().waiting_requests == 3  # with room for one more, they stay in the line
        futures.append(engine.submit(request(10)))
        until(engine, 0)
        assert len(backend.lengths_of_batches) == 1
        futures.append(engine.submit(request(40)))
        assert engine.stats().waiting_requests == 1  # one batch is formed ahead, not two
        backend.allow()
        for future in futures:
            future.result(60)


def test_a_batch_that_is_formed_is_run_by_who_ran_the_last_one_while_another_thread_answers_that() -> None:
    backend = ToyEncoder()
    backend.hold()
    with running(backend, max_batch_tokens=40) as engine:
        first = engine.submit(request(10))
        backend.wait_for_step(1)
        second = engine.submit(request(40))
        until(engine, 0)
        backend.allow(1)
        assert_right([first.result(60)], [request(10)])  # though the only loop is at the second by now
        backend.wait_for_step(2)
        assert backend.threads[0] == backend.threads[1]
        backend.allow()
        assert_right([second.result(60)], [request(40)])


def test_loops_share_what_one_call_brings() -> None:
    backend = ToyEncoder()
    backend.hold()
    with running(backend, num_loops=2) as engine:
        call = threading.Thread(target=lambda: asyncio.run(engine.run([request(10)] * 8)))
        call.start()
        backend.wait_for_step(2)
        assert engine.stats().active_rows == 8
        backend.allow()
        call.join(60)
    assert backend.most_at_once == 2


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, MAX_TOKENS), min_size=1, max_size=30), st.integers(1, 8), st.integers(1, 50))
def test_no_text_waits_for_more_batches_than_there_were_texts_before_it(
    lengths: list[int], window_requests: int, overhead_tokens: int
) -> None:
    """Whatever their lengths: each batch takes the oldest along."""
    backend = ToyEncoder()
    backend.hold()
    limits = {"max_batch_tokens": MAX_TOKENS, "window_requests": window_requests, "overhead_tokens": overhead_tokens}
    with running(backend, **limits) as engine:
        futures = [engine.submit(request(length)) for length in lengths]
        for length, future in zip(lengths, futures, strict=True):
            backend.allow(1)
            assert_right([future.result(20)], [request(length)])


def test_a_model_without_token_types_takes_those_that_are_zero() -> None:
    backend = ToyEncoder()
    backend.num_token_types = 0
    with running(backend) as engine:
        asyncio.run(engine.run([request(token_type_ids=(0, 0, 0))]))
        with pytest.raises(ValueError, match="token_type_ids holds 1, allowed: 0 to 0"):
            asyncio.run(engine.run([request(token_type_ids=(0, 1, 0))]))


@pytest.mark.parametrize("name", ["max_batch_tokens", "max_waiting_tokens"])
def test_limits_that_would_admit_what_can_never_run_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 39, but an input may have 40 tokens, which could then never run"):
        EmbeddingEngine(ToyEncoder(), EmbeddingLimits(**{name: 39}))


def test_a_batch_whose_callers_have_all_left_does_not_run() -> None:
    backend = ToyEncoder()
    backend.hold()
    with running(backend, max_batch_tokens=40) as engine:
        first = engine.submit(request(10))
        backend.wait_for_step(1)
        formed = [engine.submit(request(20)) for _ in range(2)]
        until(engine, 0)
        for future in formed:
            future.cancel()
        last = engine.submit(request(5))
        backend.allow()
        first.result(60)
        last.result(60)
    assert backend.lengths_of_batches == [[10], [5]]
