from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from service.engine.core.errors import DeadlineError, ModelUnavailableError, OverloadedError
from service.engine.core.line import LineLimits
from service.engine.encode.attention import AttentionRequest, Maps
from service.engine.encode.attention_engine import AttentionEngine


class ToyBackend:
    """Shows as its only map what it was asked; stands still until `allowed` is set."""

    vocab_size, num_token_types, max_source_tokens, max_target_tokens = 50, 2, 10, 8

    def __init__(self, reads_source: bool = True, reads_target: bool = True) -> None:
        self.reads_source, self.reads_target = reads_source, reads_target
        self.allowed = threading.Event()
        self.allowed.set()
        self.begun = threading.Event()
        self.seen: list[AttentionRequest] = []

    def maps(self, request: AttentionRequest) -> tuple[Maps, Maps | None]:
        self.begun.set()
        assert self.allowed.wait(30)
        self.seen.append(request)
        if request.source_ids == (13,):
            raise RuntimeError("thirteen")
        values = np.array([[request.source_ids or request.target_ids]], np.float32)
        return {"encoder": {0: values}}, {"encoder": {0: 2 * values}} if request.wants_norms else None


@contextmanager
def running(backend: ToyBackend, **limits: int) -> Iterator[AttentionEngine]:
    engine = AttentionEngine(backend, LineLimits(**limits))
    engine.start()
    try:
        yield engine
    finally:
        backend.allowed.set()
        engine.close()


def ask(*source: int, **fields: Any) -> AttentionRequest:
    return AttentionRequest(source, (1,), **fields)


def test_each_caller_gets_the_maps_of_its_own_input() -> None:
    async def main() -> None:
        requests = [ask(*range(1, 1 + count), wants_norms=count % 2 == 0) for count in range(1, 9)]
        results = await asyncio.gather(*(engine.run([made]) for made in requests))
        for made, (result,) in zip(requests, results, strict=True):
            assert result.maps["encoder"][0].tolist() == [[list(made.source_ids or ())]]
            assert (result.norms is not None) == made.wants_norms
            assert result.num_input_tokens == made.num_tokens
            assert result.queue_seconds >= 0
            assert result.inference_seconds >= 0

    with running(ToyBackend()) as engine:
        asyncio.run(main())
        assert engine.stats().steps == 8


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (AttentionRequest((4,), None), "target_ids must be given for this model"),
        (AttentionRequest(None, (4,)), "source_ids must be given for this model"),
        (AttentionRequest((), (4,)), "source_ids must be given for this model"),
        (ask(*range(11)), "source_ids has 11 tokens, allowed: 1 to 10"),
        (ask(4, 50), "source_ids holds 50, allowed: 0 to 49"),
        (ask(4, -1), "source_ids holds -1, allowed: 0 to 49"),
        (ask(4, 5, token_type_ids=(0,)), "token_type_ids has 1 numbers for 2 tokens"),
        (ask(4, 5, token_type_ids=(0, 2)), "token_type_ids holds 2, allowed: 0 to 1"),
    ],
)
def test_what_the_model_cannot_take_is_refused_at_the_door(request_: AttentionRequest, message: str) -> None:
    backend = ToyBackend()
    with running(backend) as engine, pytest.raises(ValueError, match=message):
        engine.submit(request_)
    assert backend.seen == []


def test_a_decoder_takes_no_source() -> None:
    with running(ToyBackend(reads_source=False)) as engine:
        with pytest.raises(ValueError, match="source_ids must not be given for this model"):
            engine.submit(ask(4))
        assert engine.submit(AttentionRequest(None, (4, 5))).result(30).num_input_tokens == 2


def test_a_full_line_refuses_and_callers_that_left_are_skipped() -> None:
    backend = ToyBackend()
    backend.allowed.clear()
    with running(backend, max_waiting_requests=2) as engine:
        first = engine.submit(ask(1))
        assert backend.begun.wait(30)
        second, third = engine.submit(ask(2)), engine.submit(ask(3))
        with pytest.raises(OverloadedError, match="2 texts of 4 tokens are waiting, allowed: 2 texts"):
            engine.submit(ask(4))
        assert second.cancel()
        fourth = engine.submit(ask(4))
        assert engine.stats().waiting_requests == 2
        backend.allowed.set()
        assert [future.result(30).num_input_tokens for future in (first, third, fourth)] == [2, 2, 2]
        assert [made.source_ids for made in backend.seen] == [(1,), (3,), (4,)]


def test_a_deadline_that_passed_is_told_and_costs_nothing() -> None:
    backend = ToyBackend()
    with running(backend) as engine:
        late = engine.submit(ask(2, deadline=time.monotonic() - 1))
        with pytest.raises(DeadlineError, match="before it was begun"):
            late.result(30)
    assert backend.seen == []


def test_a_backend_that_fails_fails_the_engine_and_everybody_hears_of_it() -> None:
    backend = ToyBackend()
    backend.allowed.clear()
    with running(backend) as engine:
        fatal = engine.submit(ask(13))
        assert backend.begun.wait(30)
        waiting = engine.submit(ask(5))
        backend.allowed.set()
        for future in (fatal, waiting):
            with pytest.raises(ModelUnavailableError, match="thirteen"):
                future.result(30)
        with pytest.raises(ModelUnavailableError):
            engine.submit(ask(6))
        assert not engine.stats().is_alive


def test_a_drained_engine_answers_what_it_took() -> None:
    with running(ToyBackend()) as engine:
        taken = engine.submit(ask(7))
        assert engine.drain(30)
        assert taken.result(0).num_input_tokens == 2
        with pytest.raises(ModelUnavailableError, match="shutting down"):
            engine.submit(ask(8))
