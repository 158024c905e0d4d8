from __future__ import annotations

from service.engine.core.lanes import Lane, LaneClock


def run(clock: LaneClock, express: int, bulk: int) -> str:
    """The turns of so many pieces in each lane; one of bulk takes four times as long."""
    order = ""
    while express or bulk:
        lane = clock.choose(express > 0, bulk > 0)
        clock.spend(lane, 4.0 if lane is Lane.BULK else 1.0)
        express, bulk = express - (lane is Lane.EXPRESS), bulk - (lane is Lane.BULK)
        order += "b" if lane is Lane.BULK else "e"
    return order


def test_a_lane_alone_always_has_its_turn() -> None:
    assert run(LaneClock(0), 3, 0) == "eee"
    assert run(LaneClock(0), 0, 3) == "bbb"


def test_both_have_the_same_time() -> None:
    assert run(LaneClock(0), 12, 3) == "ebeeeebeeeebeee"


def test_express_work_goes_first_where_bulk_had_the_time_alone() -> None:
    clock = LaneClock(lead=4.0)
    run(clock, 0, 10)
    assert run(clock, 8, 2) == "eeeeebeeeb"


def test_the_lead_is_earned_by_the_other_lane_alone() -> None:
    clock = LaneClock(lead=4.0)
    run(clock, 0, 10)
    orders = ""
    for _ in range(20):  # express work that comes again and again is never ahead by more
        orders += run(clock, 3, 1)
    assert orders.count("b") == 20


def test_bulk_work_does_not_catch_up() -> None:
    clock = LaneClock(lead=0)
    run(clock, 100, 0)
    assert run(clock, 8, 2) in ("ebeeeebeee", "beeeebeeee")
