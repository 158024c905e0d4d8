import pytest

from bench.rounds import Spread, ratio, time_in_turn


class Clock:
    """Time that only passes when a job spends it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


def test_jobs_run_in_turn_and_each_round_turns_the_order() -> None:
    order: list[str] = []
    time_in_turn({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_each_job_is_charged_what_it_spends() -> None:
    clock = Clock()
    spreads = time_in_turn({"slow": lambda: clock.spend(3), "fast": lambda: clock.spend(1)}, rounds=2, clock=clock)
    assert spreads == {"slow": Spread((3.0, 3.0)), "fast": Spread((1.0, 1.0))}


def test_ratio_compares_round_by_round() -> None:
    # The machine was ten times slower in the last round, for both.
    assert ratio(Spread((1.0, 1.0, 10.0)), Spread((2.0, 2.0, 20.0))) == 2.0


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds is 0"):
        time_in_turn({}, rounds=0)
