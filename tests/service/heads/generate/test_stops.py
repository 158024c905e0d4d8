"""The end of a text at a stop sequence, whatever the pieces that it comes in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.heads.generate.stops import StopMatcher

texts = st.text("abc", max_size=25)
stops = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def expected_end(text: str, stops: list[str]) -> tuple[int, int] | None:
    """By definition: the first end of an occurrence, and the length of the longest that ends there."""
    for end in range(len(text) + 1):
        found = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if found:
            return end, max(found)
    return None


def feed(matcher: StopMatcher, text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    parts = [matcher.push(text[start:end]) for start, end in itertools.pairwise(places)]
    return [*parts, matcher.flush()]


@given(texts, stops, st.lists(st.integers(0, 30)), st.booleans())
def test_the_text_ends_where_the_definition_says(text: str, stops: list[str], cuts: list[int], keeps: bool) -> None:
    matcher = StopMatcher(stops, keeps_stop=keeps)
    found = "".join(feed(matcher, text, cuts))
    end = expected_end(text, stops)
    assert matcher.is_found == (end is not None)
    if end is None:
        assert found == text
    else:
        assert found == text[: end[0] if keeps else end[0] - end[1]]


@given(texts, stops, st.lists(st.integers(0, 30)))
def test_nothing_is_released_that_may_begin_a_stop_sequence(text: str, stops: list[str], cuts: list[int]) -> None:
    """At any time what has been released is what any future leaves standing; and no more than needed is held."""
    matcher = StopMatcher(stops)
    released = seen = ""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        released += matcher.push(text[start:end])
        seen += text[start:end]
        if matcher.is_found:
            break
        held = seen[len(released) :]
        assert seen.startswith(released)
        beginnings = {stop[:length] for stop in stops for length in range(1, len(stop))}
        assert held in beginnings | {""}
        longest = max((len(beginning) for beginning in beginnings if seen.endswith(beginning)), default=0)
        assert len(held) == longest


@given(texts, stops, st.lists(st.integers(0, 30)))
def test_with_the_sequence_kept_nothing_is_held_back(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopMatcher(stops, keeps_stop=True)
    parts = feed(matcher, text, cuts)
    assert parts[-1] == ""
    if not matcher.is_found:
        assert "".join(parts[:-1]) == text


def test_nothing_comes_after_the_end() -> None:
    matcher = StopMatcher(["x"])
    assert [matcher.push("ax"), matcher.push("bc"), matcher.flush()] == ["a", "", ""]


def test_a_long_sequence_costs_one_pass() -> None:
    matcher = StopMatcher(["a" * 20_000 + "b"])
    assert matcher.push("a" * 60_000) == "a" * 40_000
    assert matcher.push("b") == ""
    assert matcher.is_found


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        StopMatcher(["a", ""])
