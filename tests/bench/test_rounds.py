import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.rounds import (
    Agreement,
    Spread,
    check_agreement,
    compare_tokens,
    compared,
    fastest,
    percentile,
    ratio,
    run_in_turn,
    stream_times,
    time_in_turn,
)
from bench.side import BenchError, Output, Text, thread_choices
from tests.bench.fakes import Clock, Fake

TEXTS = [Text((number,), 3) for number in range(4)]


def test_jobs_run_in_turn_and_each_round_turns_the_order() -> None:
    order: list[str] = []
    time_in_turn({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_each_job_is_charged_what_it_spends() -> None:
    clock = Clock()

    def spend(seconds: float) -> None:
        clock.now += seconds

    spreads = time_in_turn({"slow": lambda: spend(3), "fast": lambda: spend(1)}, rounds=2, clock=clock)
    assert spreads == {"slow": Spread((3.0, 3.0)), "fast": Spread((1.0, 1.0))}


def test_ratio_compares_round_by_round() -> None:
    # The machine was ten times slower in the last round, for both.
    assert ratio(Spread((1.0, 1.0, 10.0)), Spread((2.0, 2.0, 20.0))) == 2.0


def test_speeds_are_the_median_and_both_ends() -> None:
    assert Spread((4.0, 1.0, 2.0)).per_second("texts", 8) == {
        "texts_per_second": 4.0,
        "slowest_texts_per_second": 2.0,
        "fastest_texts_per_second": 8.0,
    }


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds is 0"):
        time_in_turn({}, rounds=0)


def test_threads_are_shared_evenly_in_every_way() -> None:
    assert [str(choice) for choice in thread_choices(4)] == ["4x1", "2x2", "1x4"]
    assert [str(choice) for choice in thread_choices(3)] == ["3x1", "1x3"]


def test_the_fastest_setting_is_taken_and_the_others_closed_where_asked() -> None:
    clock = Clock()
    sides = [Fake([1], seconds, clock) for seconds in (3.0, 1.0, 2.0)]
    assert fastest(sides, TEXTS, clock=clock) is sides[1]
    assert all(side.is_open for side in sides)
    assert fastest(iter(sides), TEXTS, closes=True, clock=clock) is sides[1]
    assert [side.is_open for side in sides] == [False, True, False]


def test_a_side_with_one_setting_is_not_tried() -> None:
    only = Fake([1])
    assert fastest([only], TEXTS) is only
    assert only.batches == []


def test_a_case_is_cut_into_batches_of_one_size_and_only_rounds_are_timed() -> None:
    clock = Clock()
    ours, slow, peer = Fake([1], 1.0, clock, name="polyhead"), Fake([1], 9.0, clock), Fake([1], 2.0, clock, name="peer")
    timed = run_in_turn([[slow, ours], [peer]], TEXTS, rounds=2, batch_size=2, clock=clock)
    assert [one.side.name for one in timed] == ["polyhead", "peer"]
    assert [one.spread for one in timed] == [Spread((6.0, 6.0)), Spread((12.0, 12.0))]
    assert set(ours.batches) == set(peer.batches) == {2}
    assert all(len(one.answers) == 2 * 2 for one in timed)
    row, other = compared(timed, "texts", len(TEXTS))
    assert row["ratios"] == {"peer fp32": 2.0}
    assert "ratios" not in other
    assert [each["ratios"] for each in compared(timed, "texts", 4, against="peer")] == [
        {"peer fp32": 2.0},
        {"peer fp32": 1.0},
    ]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(1, 100))
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= share / 100 * len(values) - 1e-9
    smaller = [value for value in values if value < found]
    assert len(smaller) < share / 100 * len(values) + 1e-9


def test_the_hundredth_of_a_hundred_is_the_99th_percentile_of_nobody() -> None:
    assert percentile(range(1, 101), 99) == 99
    assert percentile([7.0], 50) == 7.0


def test_gaps_never_cross_from_one_output_to_the_next() -> None:
    found = stream_times([(0.5, [Output((1, 2), (1.0, 3.0)), Output((1,), (9.0,)), Output(())])])
    assert found["gap_p50_milliseconds"] == found["gap_p99_milliseconds"] == 2000.0
    assert (found["first_token_p50_milliseconds"], found["first_token_p99_milliseconds"]) == (500.0, 8500.0)
    assert stream_times([(0.0, [Output((1, 2))])]) == {}


def test_equal_outputs_are_told_from_different_ones() -> None:
    found = compare_tokens([[1, 2], [3, 4], [5], [6, 7, 8]], [[1, 2], [3, 9], [5, 5], [6, 7, 8]])
    assert found.equal_outputs == 0.5
    # Of nine places, one has another token and one has a token on one side only.
    assert found.equal_tokens == pytest.approx(7 / 9)
    assert found.different_tokens == 1.0


def test_another_model_is_refused_in_float32_but_not_in_int8() -> None:
    other = Agreement(equal_tokens=0.85, equal_outputs=0.0, different_tokens=0.85)
    with pytest.raises(BenchError, match=r"only 85.0% of the tokens of fake"):
        check_agreement(Fake([1]), other)
    check_agreement(Fake([1], precision="int8"), other)


def test_a_model_that_repeats_itself_is_refused() -> None:
    same = [[7] * 20]
    with pytest.raises(BenchError, match="repeats itself"):
        check_agreement(Fake([7]), compare_tokens(same, same))
