from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from service.engine.core.flow import Flow
from service.engine.core.turns import Turns


@dataclass(eq=False)
class Work:
    flow: Flow
    cost: int
    name: str = ""
    start: float = 0.0


class Queue:
    """Turns with the set of those that wait."""

    def __init__(self) -> None:
        self.waiting: set[Work] = set()
        self.turns = Turns[Work](lambda work: work in self.waiting)

    def add(self, flow: Flow, *costs: int, name: str = "") -> list[Work]:
        works = [Work(flow, cost, name or flow.client) for cost in costs]
        self.waiting.update(works)
        self.turns.add(flow, works)
        return works

    def take(self) -> Work | None:
        work = self.turns.next()
        if work is not None:
            assert self.turns.next() is work
            self.turns.take([work])
            self.waiting.remove(work)
        return work

    def order(self) -> str:
        names = []
        while (work := self.take()) is not None:
            names.append(work.name)
        return "".join(names)


def test_one_request_keeps_its_order() -> None:
    queue = Queue()
    works = queue.add(Flow("a"), 3, 1, 2)
    assert [queue.take(), queue.take(), queue.take(), queue.take()] == [*works, None]


def test_single_pieces_of_equal_requests_come_in_the_order_of_arrival() -> None:
    queue = Queue()
    for name in "123456":
        queue.add(Flow("a"), 5, name=name)
    assert queue.order() == "123456"


def test_a_short_request_waits_for_one_piece_of_a_long_one_of_the_same_client() -> None:
    queue = Queue()
    queue.add(Flow("a"), *[10] * 100, name="l")
    for _ in range(50):
        queue.take()
    queue.add(Flow("a"), 10, name="s")
    assert queue.order().index("s") == 0


def test_clients_take_turns_however_many_requests_each_has() -> None:
    queue = Queue()
    for _ in range(6):
        queue.add(Flow("a"), 10, name="a")
    queue.add(Flow("b"), 10, 10, 10, name="b")
    assert queue.order() == "abababaaa"


def test_turns_are_by_cost() -> None:
    queue = Queue()
    queue.add(Flow("a"), *[30] * 4, name="a")
    queue.add(Flow("b"), *[10] * 12, name="b")
    order = queue.order()
    for length in range(4, 16):
        shares = order[:length].count("a") * 30 - order[:length].count("b") * 10
        assert abs(shares) <= 40


def test_waiting_earns_no_credit() -> None:
    queue = Queue()
    queue.add(Flow("a"), *[10] * 100, name="a")
    for _ in range(50):
        queue.take()
    queue.add(Flow("b"), *[10] * 20, name="b")
    assert queue.order()[:10].count("b") == 5


def test_the_next_part_of_a_long_request_does_not_overtake() -> None:
    queue = Queue()
    long = Flow("a")
    queue.add(long, *[10] * 10, name="l")
    queue.add(Flow("a"), 10, 10, 10, name="s")
    for _ in range(3):
        queue.take()
    queue.add(long, 10, name="L")
    assert queue.order().endswith("L")


def test_what_was_withdrawn_has_no_turn() -> None:
    queue = Queue()
    works = queue.add(Flow("a"), 1, 1, 1)
    queue.waiting -= {works[0], works[2]}
    assert queue.take() is works[1]
    assert queue.take() is None
    assert queue.add(Flow("a"), 1) == [queue.take()]


def test_a_window_begins_with_the_next_and_goes_on_with_others() -> None:
    queue = Queue()
    first = queue.add(Flow("a"), 1, 1)
    second = queue.add(Flow("b"), 1)
    assert queue.turns.window(2) == first
    assert set(queue.turns.window(9)) == {*first, *second}
    assert Queue().turns.window(3) == []


def test_withdrawn_pieces_are_forgotten() -> None:
    queue = Queue()
    staying = queue.add(Flow("a"), 1)
    for _ in range(1000):
        flow = Flow("a")
        queue.waiting -= set(queue.add(flow, 1))
        queue.turns.next()
    for _ in range(200):
        queue.add(Flow("a"), 1)
        queue.take()
    assert len(queue.turns._clients["a"].pieces) < 1300
    assert staying


@pytest.mark.parametrize("seed", range(5))
def test_nothing_starves(seed: int) -> None:
    """Whatever comes, each piece waits for no more of another client than its own client has had, and a piece."""
    chance = random.Random(seed)
    queue = Queue()
    flows = [Flow(f"client {number % 4}") for number in range(12)]
    ages: dict[Work, int] = {}
    for _ in range(3000):
        flow = chance.choice(flows)
        for work in queue.add(flow, chance.randint(1, 50)):
            ages[work] = 0
        if len(queue.waiting) > 40:
            taken = queue.take()
            assert taken is not None
            del ages[taken]
            ages = {work: age + 1 for work, age in ages.items()}
    assert max(ages.values()) < 600
