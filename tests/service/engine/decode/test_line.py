from __future__ import annotations

import contextvars
import time

import pytest

from service.engine.core.errors import ModelUnavailableError, OverloadedError, RequestTooLargeError
from service.engine.core.flow import begin_flow
from service.engine.decode.line import DecodingLimits, DecodingLine, Usage
from service.engine.decode.sequence import Ticket
from service.engine.decode.types import DecodingRequest, Result
from tests.service.engine.decode.toy import BOS, ToyBackend, request_of

RESULT = Result((), 0.0, 0.0, 1)


def request(num_tokens: int = 1, beam_size: int = 1, deadline: float | None = None) -> DecodingRequest:
    return request_of((BOS,), (5,) * num_tokens, beam_size=beam_size, max_new_tokens=9, deadline=deadline)


def line_of(num_loops: int = 1, **limits: int) -> DecodingLine:
    return DecodingLine(DecodingLimits(**limits), num_loops, ToyBackend(max_source_tokens=100))


def take(line: DecodingLine, loop: int, rows: int) -> list[Ticket] | None:
    return line.take(loop, Usage(rows))


def test_requests_take_turns_by_cost() -> None:
    line = line_of(max_rows=3)
    first = line.add([request(4), request(1), request(1)])
    second = line.add([request(1), request(2), request(2)])
    assert take(line, 0, 0) == [first[0], *second[:2]]
    assert take(line, 0, 3) == []
    assert take(line, 0, 1) == [second[2], first[1]]
    assert take(line, 0, 2) == first[2:]


def test_a_call_is_queued_whole_or_not_at_all() -> None:
    line = line_of(max_waiting_requests=3)
    line.add([request(), request()])
    with pytest.raises(OverloadedError, match="2 texts of 2 tokens are waiting, allowed: 3 texts and 131072 tokens"):
        line.add([request(), request()])
    assert line.size() == (2, 2, 0)
    line.add([request()])


def test_waiting_tokens_are_bounded_too() -> None:
    line = line_of(max_waiting_tokens=10)
    line.add([request(8)])
    with pytest.raises(
        OverloadedError, match="1 texts of 8 tokens are waiting, allowed: 1024 texts and 10 tokens"
    ) as error:
        line.add([request(3)])
    assert error.value.retry_after_seconds > 0
    line.add([request(2)])
    assert line.size() == (2, 10, 0)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([request(101)], "source of 101 tokens exceeds the limit of 100 tokens"),
        ([request(65)], "source of 65 tokens exceeds the batch budget of 64 tokens"),
        ([request(1, beam_size=9)], "beam_size 9 exceeds the 8 rows of one loop"),
        ([request(0)], "source of 0 tokens: there is nothing to read"),
        ([request()] * 5, "5 texts of 5 tokens in one request can never be queued, allowed: 4 texts and 80 tokens"),
        ([request(60), request(60)], "2 texts of 120 tokens in one request can never be queued"),
    ],
)
def test_what_could_never_be_admitted_is_refused_at_once(requests: list[DecodingRequest], message: str) -> None:
    line = line_of(max_rows=8, max_batch_tokens=64, max_waiting_requests=4, max_waiting_tokens=80)
    with pytest.raises(RequestTooLargeError, match=message):
        line.add(requests)
    assert line.size() == (0, 0, 0)


@pytest.mark.parametrize("name", ["max_rows", "max_batch_tokens", "max_waiting_requests", "max_waiting_tokens"])
def test_limits_below_one(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
        DecodingLimits(**{name: 0})


@pytest.mark.parametrize(
    ("beams", "shares"),
    [([1] * 10, [5, 5]), ([4, 4, 4], [2, 1]), ([8], [1, 0]), ([1, 8], [2, 0]), ([1] * 3, [2, 1])],
)
def test_idle_loops_share_what_waits(beams: list[int], shares: list[int]) -> None:
    line = line_of(num_loops=2, max_rows=16)
    line.add([request(beam_size=beam) for beam in beams])
    for loop, share in enumerate(shares[: 1 if 0 in shares else 2]):
        tickets = take(line, loop, 0)
        assert tickets is not None
        assert len(tickets) == share
    assert line.size() == (0, 0, sum(beams))


def test_a_busy_loop_leaves_newcomers_to_its_idle_neighbour() -> None:
    line = line_of(num_loops=2, max_rows=16)
    line.add([request()] * 3)
    assert len(take(line, 0, 0) or []) == 2
    assert len(take(line, 1, 0) or []) == 1
    newcomer = line.add([request()])
    assert take(line, 0, 3) == []
    assert take(line, 1, 0) == newcomer


def test_a_wide_beam_does_not_wait_for_an_empty_loop() -> None:
    line = line_of(num_loops=2, max_rows=16)
    line.add([request(beam_size=4), request(beam_size=4)])
    assert len(take(line, 0, 0) or []) == 1
    assert len(take(line, 1, 0) or []) == 1
    wide = line.add([request(beam_size=8)])
    assert take(line, 0, 4) == wide


def test_no_loop_takes_more_rows_than_it_has() -> None:
    line = line_of(max_rows=8)
    line.add([request(beam_size=3)] * 3)
    assert len(take(line, 0, 0) or []) == 2
    assert line.size() == (1, 1, 6)


def as_request(client: str, line: DecodingLine, *requests: DecodingRequest) -> list[Ticket]:
    def add() -> list[Ticket]:
        begin_flow(client)
        return line.add(requests)

    return contextvars.copy_context().run(add)


def test_a_short_request_finds_rows_that_a_long_one_may_not_fill() -> None:
    line = line_of(max_rows=8, express_tokens=10)
    long = as_request("a", line, *[request(2)] * 20)
    assert take(line, 0, 0) == long[:8]
    short = as_request("b", line, *[request()] * 3)
    assert line.take(0, Usage(8, 0, 8, 0)) == short[:2]
    assert line.size() == (13, 25, 10)


def test_a_long_request_finds_rows_that_short_ones_may_not_fill() -> None:
    line = line_of(max_rows=8, express_tokens=10)
    for client in range(10):
        as_request(f"{client}", line, request())
    long = as_request("a", line, *[request(2)] * 20)
    taken = take(line, 0, 0)
    assert taken is not None
    assert len(taken) == 10
    assert taken[8:] == long[:2]


def test_neither_lane_keeps_all_bytes_from_the_other() -> None:
    backend = ToyBackend()
    backend.bytes_per_position = 10
    line = DecodingLine(DecodingLimits(max_rows=100, max_cache_bytes=1600, express_tokens=8), 1, backend)
    short, long = request_of((5, 6), max_new_tokens=1), request_of((5,) * 10, max_new_tokens=1)
    bulk = as_request("a", line, *[long] * 20)
    first = line.take(0, Usage())
    assert first == bulk[:15]  # of 100 bytes each, and 100 are left
    express = as_request("b", line, *[short] * 4), as_request("c", line, *[short] * 4)
    assert len(line.take(0, Usage(15, 1500, 15, 1500)) or []) == 5  # of 20 bytes each
    assert line.take(0, Usage(20, 1600, 15, 1500)) == []
    more = line.take(0, Usage(18, 1560, 15, 1500))
    assert more is not None
    assert len(more) == 2
    assert {*more} < {*express[0], *express[1]}
    assert line.take(0, Usage(19, 1500, 14, 1400)) == bulk[15:16]


def test_a_request_of_nearly_all_bytes_has_its_turn() -> None:
    backend = ToyBackend()
    backend.bytes_per_position = 10
    line = DecodingLine(DecodingLimits(max_rows=100, max_cache_bytes=300, express_tokens=8), 1, backend)
    short, long = request_of((5, 6), max_new_tokens=1), request_of((5,) * 30, max_new_tokens=1)
    as_request("b", line, short)
    (running,) = line.take(0, Usage()) or []
    (giant,) = as_request("a", line, long)
    for _ in range(5):
        as_request("b", line, short)
    assert line.take(0, Usage(1, 20)) == []  # no short one goes before it any more
    assert line.take(0, Usage()) == [giant]
    assert not running.is_settled


def test_prompts_that_would_only_wait_to_be_read_stay_in_line() -> None:
    line = DecodingLine(DecodingLimits(max_prompt_batch_tokens=10), 1, ToyBackend())
    as_request("a", line, *[request_of((5,) * 10, max_new_tokens=1)] * 30)
    assert len(line.take(0, Usage()) or []) == 4
    assert line.take(0, Usage(4), [0, 40]) == []
    other = as_request("b", line, *[request_of((5,) * 10, max_new_tokens=1)] * 15)
    assert line.take(0, Usage(4), [0, 40]) == []
    taken = line.take(0, Usage(4), [0, 15])
    assert taken is not None
    assert len(taken) == 3
    assert {*taken} & {*other}


def test_late_tickets_come_out_although_there_is_no_room() -> None:
    line = line_of(max_rows=4)
    now = time.monotonic()
    line.add([request(beam_size=4)])
    assert take(line, 0, 0)
    staying, late = line.add([request(deadline=now + 60), request(3, deadline=now)])
    assert take(line, 0, 4) == [late]
    assert line.size() == (1, 1, 4)
    assert take(line, 0, 4) == []
    assert take(line, 0, 0) == [staying]


def test_a_withdrawn_ticket_makes_room() -> None:
    line = line_of(max_waiting_requests=2)
    first, second = line.add([request(3), request(4)])
    line.withdraw(first)
    assert line.size() == (1, 4, 0)
    third = line.add([request()])
    assert take(line, 0, 0) == [*third, second]
    line.withdraw(second)  # it is no longer in the line
    assert line.size() == (0, 0, 2)


def test_refusing_stopping_and_clearing() -> None:
    line = line_of(max_rows=1)
    line.add([request(2), request(2)])
    line.refuse("going home")
    line.refuse("a second reason")
    with pytest.raises(ModelUnavailableError, match=r"^going home$"):
        line.add([request()])
    assert len(take(line, 0, 0) or []) == 1
    assert len(line.clear()) == 1
    assert line.size() == (0, 0, 1)
    line.stop()
    assert take(line, 0, 1) == []  # what runs may finish
    assert take(line, 0, 0) is None


def test_a_ticket_is_settled_once() -> None:
    answered, failed, cancelled = line_of().add([request()] * 3)
    answered.answer(RESULT)
    answered.fail(ModelUnavailableError("too late"))
    assert answered.future.result() is RESULT
    failed.fail(ModelUnavailableError("first"))
    failed.answer(RESULT)
    with pytest.raises(ModelUnavailableError, match="first"):
        failed.future.result()
    cancelled.future.cancel()
    cancelled.answer(RESULT)
    assert cancelled.future.cancelled()


def test_a_callback_may_settle_other_tickets() -> None:
    first, second = line_of().add([request()] * 2)
    first.future.add_done_callback(lambda _: second.fail(ModelUnavailableError("the first one is gone")))
    first.answer(RESULT)
    assert isinstance(second.future.exception(), ModelUnavailableError)
