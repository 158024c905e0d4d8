"""What every engine does, whatever its model computes: admission, order, deadlines, leaving, draining, ending."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from service.engine.core.base import BaseEngine
from service.engine.core.errors import (
    DeadlineError,
    EngineError,
    ModelUnavailableError,
    OverloadedError,
    RequestTooLargeError,
)
from service.engine.core.observer import NullObserver
from service.engine.decode.sampling.options import SamplingOptions
from service.engine.encode.attention import AttentionRequest
from service.engine.encode.embedding import EmbeddingRequest
from tests.service.engine.decode.toy import BOS, request_of
from tests.service.engine.gate import Gate
from tests.service.engine.subjects import SUBJECTS, Subject

WITH_LOOPS = [
    pytest.param(subject, num_loops, id=f"{subject.name}-{num_loops}")
    for subject in SUBJECTS
    for num_loops in ((1, 2) if subject.takes_loops else (1,))
]
every_engine = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
with_loops = pytest.mark.parametrize(("subject", "num_loops"), WITH_LOOPS)


class Counts(NullObserver):
    """What an engine reports."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_tokens = 0
        self.num_padded_tokens = 0

    def on_queue(self, seconds: float) -> None:
        assert seconds >= 0
        self.num_begun += 1

    def on_encode(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        assert num_rows >= 1
        self.num_tokens += num_tokens
        self.num_padded_tokens += num_padded_tokens


@dataclass
class Running:
    """An engine that runs, its model, and requests that are numbered as they are made."""

    subject: Subject
    engine: BaseEngine[Any, Any]
    backend: Gate
    counts: Counts
    made: list[Any] = field(default_factory=list)

    def request(self, deadline: float | None = None) -> Any:
        self.made.append(self.subject.request(len(self.made), deadline))
        return self.made[-1]

    async def ask(self, request: Any) -> None:
        """Ask, and hold the answer to what it must be."""
        assert await self.subject.ask(self.engine, request) == self.subject.expected(request)

    async def asked(self, deadline: float | None = None) -> asyncio.Task[None]:
        """A caller that has asked and waits."""
        task = asyncio.create_task(self.ask(self.request(deadline)))
        await asyncio.sleep(0)
        return task

    async def occupied(self, num_loops: int = 1) -> list[asyncio.Task[None]]:
        """Callers whose requests keep every loop at work, at the beginning of a step that waits for `allow`."""
        self.backend.hold()
        tasks = []
        for number in range(1, num_loops + 1):
            tasks.append(await self.asked())
            await asyncio.to_thread(self.backend.wait_for_step, number)
        return tasks

    async def settles(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, self.engine.stats()
            await asyncio.sleep(0.001)

    async def is_idle(self) -> None:
        """Nothing waits and nothing is held, soon after the last answer."""

        def is_empty() -> bool:
            stats = self.engine.stats()
            return (stats.waiting_requests, stats.waiting_tokens, stats.active_rows) == (0, 0, 0)

        await self.settles(is_empty)


@asynccontextmanager
async def running(subject: Subject, num_loops: int = 1, **limits: int) -> AsyncIterator[Running]:
    backend, counts = subject.backend(), Counts()
    engine = subject.engine(backend, num_loops, counts, **limits)
    engine.start()
    try:
        yield Running(subject, engine, backend, counts)
    finally:
        backend.allow()
        await asyncio.to_thread(engine.close)
        assert not any(thread.is_alive() for thread in engine._threads)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main(), 60)

    asyncio.run(bounded())


async def errors_of(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*tasks, return_exceptions=True)


@with_loops
def test_every_caller_gets_its_own_answer(subject: Subject, num_loops: int) -> None:
    async def main() -> None:
        async with running(subject, num_loops) as it:
            await asyncio.gather(*(it.ask(it.request()) for _ in range(40)))
            requests = [it.request() for _ in range(10)]
            results = await it.engine.run(requests)  # of one call, in its order
            assert [subject.answer(result) for result in results] == [subject.expected(each) for each in requests]
            assert await it.engine.run([]) == []
            await it.is_idle()

    run(main)


@with_loops
def test_an_engine_that_dies_fails_everything_says_why_and_takes_no_more(subject: Subject, num_loops: int) -> None:
    def fail(_: int) -> None:
        raise MemoryError("the device is gone")

    async def main() -> None:
        async with running(subject, num_loops) as it:
            it.backend.on_step = fail
            callers = [*await it.occupied(num_loops), *[await it.asked() for _ in range(5)]]
            assert it.engine.stats().is_alive
            it.backend.allow()
            for error in await errors_of(callers):
                assert isinstance(error, ModelUnavailableError)
                assert "the device is gone" in str(error)
            with pytest.raises(ModelUnavailableError, match="the device is gone"):
                await it.ask(it.request())
            assert not it.engine.stats().is_alive
            assert it.engine.stats().waiting_requests == 0
            assert it.engine.drain(0)

    run(main)


@with_loops
def test_draining_answers_what_was_accepted_and_refuses_the_rest(subject: Subject, num_loops: int) -> None:
    async def main() -> None:
        async with running(subject, num_loops) as it:
            callers = [*await it.occupied(num_loops), *[await it.asked() for _ in range(5)]]
            assert not await asyncio.to_thread(it.engine.drain, 0.01)
            with pytest.raises(ModelUnavailableError):
                await it.ask(it.request())
            it.backend.allow()
            assert await asyncio.to_thread(it.engine.drain, 60)
            assert await errors_of(callers) == [None] * len(callers)
            assert it.engine.stats().is_alive

    run(main)


@with_loops
def test_closing_fails_what_is_open_and_ends_the_threads(subject: Subject, num_loops: int) -> None:
    async def main() -> None:
        async with running(subject, num_loops) as it:
            callers = [*await it.occupied(num_loops), *[await it.asked() for _ in range(3)]]
            closing = threading.Thread(target=it.engine.close)
            closing.start()  # while the model is at work: nobody waits for that
            for error in await errors_of(callers):
                assert isinstance(error, ModelUnavailableError)
            it.backend.allow()
            await asyncio.to_thread(closing.join, 60)
            with pytest.raises(ModelUnavailableError):
                await it.ask(it.request())
            assert it.counts.num_begun <= num_loops

    run(main)


@every_engine
def test_a_deadline_that_passes_in_the_line_fails_its_request_and_its_call(subject: Subject) -> None:
    async def main() -> None:
        async with running(subject) as it:
            (first,) = await it.occupied()
            late = await it.asked(time.monotonic())
            in_time = await it.asked(time.monotonic() + 600)
            requests = [it.request(), it.request(time.monotonic()), it.request()]
            call = asyncio.create_task(it.engine.run(requests))
            await asyncio.sleep(0)
            it.backend.allow()
            for task in (late, call):
                with pytest.raises(DeadlineError):
                    await task
            await first
            await in_time
            await it.is_idle()
            # The late ones have not run; their neighbours may have begun before the call was told.
            assert it.counts.num_begun <= len(it.made) - 2

    run(main)


@every_engine
def test_a_caller_that_leaves_the_line_makes_room_and_is_not_run(subject: Subject) -> None:
    async def main() -> None:
        async with running(subject, max_waiting_requests=2) as it:
            callers = await it.occupied()
            callers.append(await it.asked())
            leaving = await it.asked()
            with pytest.raises(OverloadedError):
                await it.ask(it.request())
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            assert it.engine.stats().waiting_requests == 1
            callers.append(await it.asked())
            it.backend.allow()
            assert await errors_of(callers) == [None] * 3
            await it.is_idle()
            assert it.counts.num_begun == 3

    run(main)


@with_loops
def test_a_caller_that_leaves_while_its_request_runs_harms_nobody(subject: Subject, num_loops: int) -> None:
    async def main() -> None:
        async with running(subject, num_loops) as it:
            leaving, *others = await it.occupied(num_loops)
            waiting = await it.asked()
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            it.backend.allow()
            assert await errors_of([*others, waiting]) == [None] * (len(others) + 1)
            await it.is_idle()
            assert it.engine.stats().is_alive

    run(main)


@every_engine
@pytest.mark.parametrize("limit", ["max_waiting_requests", "max_waiting_tokens"])
def test_a_call_is_queued_whole_or_not_at_all(subject: Subject, limit: str) -> None:
    num_tokens = subject.request(0).num_tokens
    room = 4 if limit == "max_waiting_requests" else max(4 * num_tokens, 40)
    num_requests = room if limit == "max_waiting_requests" else room // num_tokens

    async def main() -> None:
        async with running(subject, **{limit: room, "max_batch_tokens": 40}) as it:
            with pytest.raises(RequestTooLargeError):  # however long it waited
                await it.engine.run([it.request() for _ in range(num_requests + 1)])
            callers = await it.occupied()
            requests = [it.request() for _ in range(num_requests - 2)]
            waiting = asyncio.create_task(it.engine.run(requests))
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError) as error:
                await it.engine.run([it.request() for _ in range(3)])
            assert error.value.retry_after_seconds > 0
            assert it.engine.stats().waiting_requests == len(requests)
            assert it.engine.stats().waiting_tokens == len(requests) * num_tokens
            callers += [await it.asked(), await it.asked()]
            it.backend.allow()
            assert await errors_of(callers) == [None] * 3
            assert [subject.answer(result) for result in await waiting] == list(map(subject.expected, requests))

    run(main)


@every_engine
def test_statistics_say_what_waits_runs_and_was_done(subject: Subject) -> None:
    async def main() -> None:
        async with running(subject) as it:
            assert it.engine.stats().steps == 0
            callers = [*await it.occupied(), *[await it.asked() for _ in range(3)]]
            stats, num_tokens = it.engine.stats(), it.made[0].num_tokens
            assert (stats.waiting_requests, stats.waiting_tokens) == (3, 3 * num_tokens)
            assert stats.active_rows == 1
            it.backend.allow()
            assert await errors_of(callers) == [None] * 4
            await it.is_idle()
            # Requests are of one length: there is no padding.
            assert (it.counts.num_begun, it.counts.num_tokens) == (4, 4 * num_tokens)
            assert it.counts.num_padded_tokens == it.engine.stats().padding_share == 0
            await it.settles(lambda: it.engine.stats().steps == it.backend.num_steps)

    run(main)


def refused(name: str, request: Any, error: type[Exception], parameter: str, value: object, **limits: int) -> Any:
    subject = next(subject for subject in SUBJECTS if subject.name == name)
    return pytest.param(subject, request, error, parameter, value, limits, id=f"{name}-{parameter}-{value}")


def prompt(*token_ids: int, **changes: Any) -> Any:
    return request_of(token_ids, **{"max_new_tokens": 9} | changes)


def sourced(*token_ids: int, **changes: Any) -> Any:
    return request_of((BOS,), token_ids, **{"max_new_tokens": 9} | changes)


@pytest.mark.parametrize(
    ("subject", "request_", "error", "parameter", "value", "limits"),
    [
        refused("translation", sourced(5, 24), ValueError, "source_ids", 24),
        refused("translation", prompt(5), ValueError, "source_ids", "must be given"),
        refused("translation", sourced(), RequestTooLargeError, "source", 0),
        refused("translation", sourced(*[5] * 21), RequestTooLargeError, "source", 21),
        refused("translation", sourced(*[5] * 11), RequestTooLargeError, "batch", 11, max_batch_tokens=10),
        refused("translation", sourced(5, beam_size=5), ValueError, "beam_size", 5, max_rows=8),
        refused("translation", sourced(5, beam_size=3), ValueError, "beam_size", 3, max_rows=2),
        refused("translation", sourced(5, 6, 7), RequestTooLargeError, "cache", 9 + 3, max_cache_bytes=11),
        refused("generation", request_of((5,), (6,)), ValueError, "source_ids", "must not be given"),
        refused("generation", prompt(5, 24), ValueError, "prompt_ids", 24),
        refused("generation", prompt(-1), ValueError, "prompt_ids", -1),
        refused("generation", prompt(), RequestTooLargeError, "prompt", 0),
        refused("generation", prompt(5, 6, max_new_tokens=64), RequestTooLargeError, "new tokens", 64),
        refused("generation", prompt(5, 6, max_new_tokens=50), RequestTooLargeError, "cache", 51, max_cache_bytes=50),
        refused("generation", prompt(5, top_n_tokens=9), ValueError, "top_n_tokens", 9),
        refused("generation", prompt(5, suppressed_ids=(24,)), ValueError, "suppressed_ids", 24),
        refused("generation", prompt(5, first_suppressed_ids=(25,)), ValueError, "suppressed_ids", 25),
        refused(
            "generation", prompt(5, sampling=SamplingOptions(logit_bias=((30, 1.0),))), ValueError, "logit_bias", 30
        ),
        refused("embedding", EmbeddingRequest((1,) * 41), RequestTooLargeError, "input", 41),
        refused("embedding", EmbeddingRequest(()), RequestTooLargeError, "input", 0),
        refused("embedding", EmbeddingRequest((1, 100)), ValueError, "input_ids", 100),
        refused("embedding", EmbeddingRequest((1, -1)), ValueError, "input_ids", -1),
        refused("embedding", EmbeddingRequest((1, 2), token_type_ids=(0, 2)), ValueError, "token_type_ids", 2),
        refused("embedding", EmbeddingRequest((1, 2, 3), token_type_ids=(0, 1)), ValueError, "token_type_ids", 2),
        refused("attention", AttentionRequest((4,), None), ValueError, "target_ids", "must be given"),
        refused("attention", AttentionRequest(None, (4,)), ValueError, "source_ids", "must be given"),
        refused("attention", AttentionRequest((), (4,)), ValueError, "source_ids", "must be given"),
        refused("attention", AttentionRequest((1,) * 11, (4,)), ValueError, "source_ids", 11),
        refused("attention", AttentionRequest((4,), (1,) * 9), ValueError, "target_ids", 9),
        refused("attention", AttentionRequest((4, 50), (4,)), ValueError, "source_ids", 50),
        refused("attention", AttentionRequest((4, -1), (4,)), ValueError, "source_ids", -1),
        refused("attention", AttentionRequest((4,), (50,)), ValueError, "target_ids", 50),
        refused("attention", AttentionRequest((4, 5), (4,), (0,)), ValueError, "token_type_ids", 1),
        refused("attention", AttentionRequest((4, 5), (4,), (0, 2)), ValueError, "token_type_ids", 2),
    ],
)
def test_what_could_never_run_is_refused_at_once_and_nothing_of_its_call_runs(
    subject: Subject,
    request_: Any,
    error: type[Exception],
    parameter: str,
    value: object,
    limits: dict[str, int],
) -> None:
    async def main() -> None:
        async with running(subject, **{"max_waiting_tokens": 40} | limits) as it:
            with pytest.raises(error, match=rf"\b{parameter}\b") as found:
                await it.engine.run([subject.request(1), request_])
            assert isinstance(found.value, EngineError | ValueError)
            assert str(value) in str(found.value)
            assert it.engine.stats().waiting_requests == it.backend.num_steps == 0
            await it.ask(subject.request(0))

    run(main)


@every_engine
def test_limits_are_at_least_one(subject: Subject) -> None:
    for name in ("max_batch_tokens", "max_waiting_requests", "max_waiting_tokens"):
        limits: dict[str, int] = {name: 0}
        with pytest.raises(ValueError, match=rf"{name} is 0; it must be at least 1"):
            subject.engine(subject.backend(), 1, None, **limits)
    if subject.takes_loops:
        with pytest.raises(ValueError, match="num_loops is 0; it must be at least 1"):
            subject.engine(subject.backend(), 0)
