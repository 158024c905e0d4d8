from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.engine.engine import Engine
from service.engine.errors import DeadlineError, ModelUnavailableError, OverloadedError
from service.engine.observer import NullObserver
from service.engine.types import DecodingOptions, GenerationResult, InferenceRequest
from service.engine.waiting import EngineLimits
from tests.service.engine.toy import MAX_TOKENS, ToyBackend, oracle

LONG = InferenceRequest((5, 6, 7), DecodingOptions(max_new_tokens=MAX_TOKENS))


def source_of_length(num_steps: int, beam_size: int = 1) -> tuple[int, ...]:
    """A source whose search takes at least so many steps."""
    options = DecodingOptions(beam_size, max_new_tokens=num_steps)
    for first in range(3, 2000):
        if not any(hypothesis.finished for hypothesis in oracle((first,), options)):
            return (first,)
    raise AssertionError("the toy model ends too soon")


def long_request(beam_size: int = 1, deadline: float | None = None) -> InferenceRequest:
    options = DecodingOptions(beam_size, max_new_tokens=MAX_TOKENS)
    return InferenceRequest(source_of_length(8, beam_size), options, deadline)


def expected(request: InferenceRequest) -> tuple[Any, ...]:
    return tuple(oracle(request.input_ids, request.options))


@contextmanager
def engine_of(
    backend: ToyBackend, num_loops: int = 1, capacities: tuple[int, ...] = (8, 16), **limits: int
) -> Iterator[Engine]:
    engine = Engine(backend, EngineLimits(**limits), num_loops, capacities=capacities)
    engine.start()
    try:
        yield engine
    finally:
        backend.allow()
        engine.close()


def wait_until_idle(engine: Engine) -> None:
    end = time.monotonic() + 60
    while (stats := engine.stats()).active_rows or stats.waiting_requests:
        assert time.monotonic() < end, stats
        time.sleep(0.002)


class Visits:
    """Requests that come and go at given steps of the engine."""

    def __init__(self, engine: Engine, plan: list[tuple[int, InferenceRequest, int | None]]) -> None:
        self._engine = engine
        self._coming = sorted(plan, key=lambda visit: visit[0])
        self._leaving: list[tuple[int, Future[GenerationResult]]] = []
        self._lock = threading.RLock()
        self.futures: list[tuple[InferenceRequest, Future[GenerationResult]]] = []

    def on_step(self, number: int) -> None:
        with self._lock:
            while self._coming and self._coming[0][0] <= number:
                self.next()
            for last_step, future in self._leaving:
                if last_step <= number:
                    future.cancel()

    def next(self) -> None:
        with self._lock:
            if self._coming:
                first_step, request, num_steps = self._coming.pop(0)
                future = self._engine.submit(request)
                self.futures.append((request, future))
                if num_steps is not None:
                    self._leaving.append((first_step + num_steps, future))

    def finish(self) -> None:
        """Until all have come and are answered; where the engine idles, the next one comes."""
        done = 0
        while True:
            while done < len(self.futures):
                request, future = self.futures[done]
                done += 1
                with suppress(CancelledError):
                    assert future.result(timeout=60).hypotheses == expected(request)
            if not self._coming:
                return
            self.next()


@st.composite
def requests(draw: st.DrawFn) -> InferenceRequest:
    source = draw(st.lists(st.integers(3, 19), min_size=1, max_size=20))
    beam_size = draw(st.sampled_from([1, 1, 2, 3, 4]))
    options = DecodingOptions(
        beam_size, draw(st.sampled_from([0.0, 0.6, 1.0])), draw(st.integers(1, beam_size)), draw(st.integers(1, 30))
    )
    return InferenceRequest(tuple(source), options)


visits = st.tuples(st.integers(0, 25), requests(), st.none() | st.integers(0, 6))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=st.lists(visits, min_size=1, max_size=16),
    num_loops=st.integers(1, 3),
    max_rows=st.integers(4, 12),
    capacities=st.sampled_from([(), (4,), (2, 3, 5), (8, 16)]),
    max_batch_tokens=st.integers(20, 60),
)
def test_each_request_gets_its_own_result_whatever_else_comes_and_goes(
    plan: list[tuple[int, InferenceRequest, int | None]],
    num_loops: int,
    max_rows: int,
    capacities: tuple[int, ...],
    max_batch_tokens: int,
) -> None:
    backend = ToyBackend()
    backend.max_source_tokens = 20
    limits = EngineLimits(max_rows=max_rows, max_batch_tokens=max_batch_tokens)
    engine = Engine(backend, limits, num_loops, capacities=capacities)
    visits = Visits(engine, plan)
    backend.on_step = visits.on_step
    visits.on_step(0)
    engine.start()
    try:
        visits.finish()
        wait_until_idle(engine)
        assert engine.stats().is_alive
        assert len(visits.futures) == len(plan)
        assert max(backend.rows_of_steps, default=0) <= max_rows
        assert all(count * longest <= max_batch_tokens for count, longest in backend.encoded)
    finally:
        engine.close()


def test_requests_that_arrive_together_run_together() -> None:
    backend = ToyBackend()
    engine = Engine(backend)
    futures = [engine.submit(LONG) for _ in range(5)]
    engine.start()
    assert [future.result(60).hypotheses for future in futures] == [expected(LONG)] * 5
    assert set(backend.rows_of_steps) == {5}
    assert backend.encoded == [(5, 3)]
    assert engine.stats().steps == len(backend.rows_of_steps)
    engine.close()


def test_a_newcomer_joins_at_the_next_step() -> None:
    backend = ToyBackend()
    backend.hold()
    with engine_of(backend) as engine:
        first = engine.submit(long_request(beam_size=2))
        backend.wait_for_step(1)
        second, wider = engine.submit(long_request(beam_size=2)), engine.submit(long_request(beam_size=3))
        backend.allow(2)
        backend.wait_for_step(3)
        assert backend.rows_of_steps == [2, 4, 3]  # a table for each width, one after the other
        backend.allow()
        assert first.result(60).hypotheses == second.result(60).hypotheses == expected(long_request(beam_size=2))
        assert wider.result(60).hypotheses == expected(long_request(beam_size=3))


def test_cancelling_frees_the_rows_at_the_next_step() -> None:
    backend = ToyBackend()
    backend.hold()
    with engine_of(backend) as engine:
        request = long_request(beam_size=4)
        staying = engine.submit(request)
        backend.wait_for_step(1)
        leaving = engine.submit(request)
        backend.allow(2)
        backend.wait_for_step(3)
        assert engine.stats().active_rows == 8
        assert leaving.cancel()
        backend.allow(1)
        backend.wait_for_step(4)
        assert backend.rows_of_steps == [4, 8, 8, 4]
        backend.allow()
        assert staying.result(60).hypotheses == expected(request)


def test_who_leaves_the_line_makes_room_for_others() -> None:
    backend = ToyBackend()
    backend.hold()
    with engine_of(backend, max_rows=1, max_waiting_requests=2) as engine:
        running = engine.submit(long_request())
        backend.wait_for_step(1)
        leaving, staying = engine.submit(LONG), engine.submit(LONG)
        with pytest.raises(OverloadedError, match="2 texts of 6 tokens are waiting"):
            engine.submit(LONG)
        leaving.cancel()
        assert engine.stats().waiting_requests == 1
        joining = engine.submit(LONG)
        backend.allow()
        assert running.result(60).hypotheses == expected(long_request())
        assert staying.result(60).hypotheses == joining.result(60).hypotheses == expected(LONG)


def test_a_deadline_that_passes_in_the_line() -> None:
    backend = ToyBackend()
    backend.hold()
    with engine_of(backend, max_rows=1) as engine:
        running = engine.submit(long_request())
        backend.wait_for_step(1)
        waiting = engine.submit(long_request(deadline=time.monotonic()))
        backend.allow(1)
        backend.wait_for_step(2)  # the one row is still taken
        with pytest.raises(DeadlineError, match=r"passed before it was begun, \d"):
            waiting.result(timeout=0)
        backend.allow()
        assert running.result(60).hypotheses == expected(long_request())


def test_a_deadline_that_passes_at_work() -> None:
    backend = ToyBackend()
    backend.hold()
    with engine_of(backend) as engine:
        staying = engine.submit(long_request())
        backend.wait_for_step(1)
        deadline = time.monotonic() + 2
        late = engine.submit(long_request(deadline=deadline))
        backend.allow(3)
        backend.wait_for_step(4)
        time.sleep(max(0.0, deadline - time.monotonic()))
        backend.allow(1)
        backend.wait_for_step(5)
        with pytest.raises(DeadlineError, match=r"passed after 3 tokens, \d"):
            late.result(timeout=0)
        assert backend.rows_of_steps == [1, 2, 2, 2, 1]
        backend.allow()
        assert staying.result(60).hypotheses == expected(long_request())


@pytest.mark.parametrize("num_loops", [1, 2])
def test_a_loop_that_dies_fails_everything_and_refuses_more(num_loops: int) -> None:
    def fail(number: int) -> None:
        if number >= 3:
            raise RuntimeError("the device is gone")

    backend = ToyBackend(fail)
    backend.hold()
    with engine_of(backend, num_loops, max_rows=2) as engine:
        futures = [engine.submit(long_request()) for _ in range(9)]
        backend.wait_for_step(1)
        backend.allow()
        for future in futures:
            with pytest.raises(ModelUnavailableError, match="failed while the request was in work: the device is gone"):
                future.result(60)
        with pytest.raises(ModelUnavailableError, match="the model's loop died: the device is gone"):
            engine.submit(LONG)
        assert not engine.stats().is_alive
        assert engine.stats().waiting_requests == 0
        assert engine.drain(0)


def test_draining_answers_what_was_accepted_and_refuses_the_rest() -> None:
    backend = ToyBackend()
    backend.hold()
    with engine_of(backend, max_rows=2) as engine, ThreadPoolExecutor(1) as pool:
        futures = [engine.submit(long_request()) for _ in range(5)]
        backend.wait_for_step(1)
        assert not engine.drain(0.01)
        drained = pool.submit(engine.drain, 60)
        with pytest.raises(ModelUnavailableError, match="the server is shutting down"):
            engine.submit(LONG)
        assert not drained.done()
        backend.allow()
        assert drained.result(60)
        assert [future.result(0).hypotheses for future in futures] == [expected(long_request())] * 5


def test_draining_does_not_wait_for_who_has_left() -> None:
    backend = ToyBackend()
    backend.hold()
    with engine_of(backend, max_rows=1) as engine, ThreadPoolExecutor(1) as pool:
        running, waiting = engine.submit(long_request()), engine.submit(LONG)
        backend.wait_for_step(1)
        drained = pool.submit(engine.drain, 60)
        time.sleep(0.05)
        running.cancel()
        waiting.cancel()
        assert drained.result(10)


def test_closing_fails_what_is_open() -> None:
    backend = ToyBackend()
    backend.hold()
    with engine_of(backend, max_rows=1) as engine:
        futures = [engine.submit(long_request()) for _ in range(2)]
        backend.wait_for_step(1)
        closing = threading.Thread(target=engine.close)
        closing.start()
        for future in futures:
            with pytest.raises(ModelUnavailableError, match="closed before the request was finished"):
                future.result(60)
        backend.allow()
        closing.join(60)
        assert not engine.stats().is_alive
        with pytest.raises(ModelUnavailableError, match="the engine is closed"):
            engine.submit(LONG)
        engine.close()


def test_an_engine_that_never_started_can_be_closed() -> None:
    engine = Engine(ToyBackend())
    future = engine.submit(LONG)
    assert not engine.stats().is_alive
    engine.close()
    with pytest.raises(ModelUnavailableError):
        future.result(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DecodingOptions(max_new_tokens=41), "max_new_tokens is 41, allowed: 1 to 40"),
        (DecodingOptions(beam_size=5, max_new_tokens=9), "beam_size is 5, allowed: 1 to 4"),
    ],
)
def test_options_that_the_model_cannot_have(options: DecodingOptions, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Engine(ToyBackend()).submit(InferenceRequest((5,), options))


def test_no_loops() -> None:
    with pytest.raises(ValueError, match="num_loops is 0; it must be at least 1"):
        Engine(ToyBackend(), num_loops=0)


def test_run_answers_in_the_order_of_asking() -> None:
    requests = [long_request(), LONG, long_request(beam_size=3), LONG]

    async def main() -> None:
        with engine_of(ToyBackend()) as engine:
            results = await engine.run(requests)
            assert [result.hypotheses for result in results] == [expected(request) for request in requests]
            assert [result.num_input_tokens for result in results] == [1, 3, 1, 3]
            assert all(result.queue_seconds >= 0 and result.inference_seconds > 0 for result in results)
            assert await engine.run([]) == []

    asyncio.run(main())


def test_cancelling_run_withdraws_all_of_it() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        with engine_of(backend, max_rows=2) as engine:
            task = asyncio.create_task(engine.run([long_request()] * 5))
            await asyncio.to_thread(backend.wait_for_step, 1)
            assert engine.stats().waiting_requests == 3
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert engine.stats().waiting_requests == 0
            backend.allow(1)
            await asyncio.to_thread(wait_until_idle, engine)
            assert backend.rows_of_steps == [2]

    asyncio.run(main())


def test_one_late_request_of_a_run_takes_the_others_along() -> None:
    async def main() -> None:
        backend = ToyBackend()
        backend.hold()
        with engine_of(backend, max_rows=1) as engine:
            with pytest.raises(DeadlineError):
                await engine.run([long_request(), long_request(), long_request(deadline=time.monotonic())])
            assert engine.stats().waiting_requests == 0
            backend.allow(1)
            await asyncio.to_thread(wait_until_idle, engine)
            assert len(backend.rows_of_steps) <= 1

    asyncio.run(main())


class Counts(NullObserver):
    def __init__(self) -> None:
        self.encoded: list[tuple[int, int, int]] = []
        self.steps: list[int] = []
        self.num_admitted = 0
        self.rows: list[int] = []

    def on_encode(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        self.encoded.append((num_rows, num_tokens, num_padded_tokens))

    def on_step(self, num_rows: int, num_new_tokens: int, num_padded_tokens: int) -> None:
        self.steps.append(num_rows)

    def on_queue(self, seconds: float) -> None:
        assert seconds >= 0
        self.num_admitted += 1

    def on_rows(self, active_rows: int, max_rows: int) -> None:
        assert max_rows == EngineLimits().max_rows
        self.rows.append(active_rows)


def test_the_observer_and_the_stats_see_what_is_done() -> None:
    backend, counts = ToyBackend(), Counts()
    engine = Engine(backend, observer=counts)
    futures = [engine.submit(request) for request in (long_request(), LONG, long_request(beam_size=2))]
    engine.start()
    for future in futures:
        future.result(60)
    wait_until_idle(engine)
    stats = engine.stats()
    assert counts.encoded == [(2, 4, 2), (1, 1, 0)]
    assert counts.steps == backend.rows_of_steps
    assert counts.num_admitted == 3
    assert (max(counts.rows), counts.rows[-1]) == (4, 0)
    assert stats.generated_tokens == sum(backend.rows_of_steps)
    assert stats.padding_share == 2 / 7
    engine.close()
