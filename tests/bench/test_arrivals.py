import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.arrivals import closed_loop, percentile, poisson, poisson_times
from bench.decoding import Job, Settings, Source, Threads

SETTINGS = Settings(beam_size=1, max_new_tokens=4)


class Echo:
    """Answers every source with itself, once it holds `patience` of them, and notes how many it held at most."""

    name, threads = "echo", Threads(1, 1)

    def __init__(self, patience: int = 1) -> None:
        self.seen: list[Source] = []
        self.most = 0
        self._patience = patience
        self._held: list[tuple[Future[Any], Source]] = []
        self._lock = threading.Lock()

    def job(self, sources: Sequence[Source], settings: Settings) -> Job:
        return lambda: sources

    def tokens(self, answer: Any) -> list[list[int]]:
        return [list(source) for source in answer]

    def submit(self, source: Source, settings: Settings) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self.seen.append(source)
            self._held.append((future, source))
            self.most = max(self.most, len(self._held))
            ready = self._held if len(self._held) >= self._patience else []
            if ready:
                self._held = []
        for item in ready:
            self.answer(*item)
        return future

    def answer(self, future: Future[Any], source: Source) -> None:
        future.set_result(source)

    def close(self) -> None:
        return None


SOURCES: list[Source] = [(number, 2) for number in range(24)]


def test_clients_of_a_closed_loop_have_one_request_each() -> None:
    # With four clients or more it would hold four at times; with fewer than three it would never answer.
    echo = Echo(patience=3)
    result = closed_loop(echo, SOURCES, SETTINGS, num_clients=3)
    assert sorted(echo.seen) == SOURCES
    assert echo.most == 3
    assert len(result.latencies) == len(SOURCES)
    assert min(result.latencies) > 0
    assert result.tokens_per_second == pytest.approx(2 * result.requests_per_second)


def test_open_arrivals_do_not_wait_for_answers() -> None:
    echo = Echo(patience=len(SOURCES))
    result = poisson(echo, SOURCES, SETTINGS, rate=1e6)
    assert echo.seen == SOURCES
    assert all(latency > 0 for latency in result.latencies)


def test_an_error_of_the_decoder_is_not_counted_as_an_answer() -> None:
    class Broken(Echo):
        def answer(self, future: Future[Any], source: Source) -> None:
            future.set_exception(RuntimeError("out of order"))

    with pytest.raises(RuntimeError, match="out of order"):
        poisson(Broken(), SOURCES, SETTINGS, rate=1e6)


def test_poisson_times_are_repeatable_rising_and_have_the_rate() -> None:
    times = poisson_times(rate=50.0, count=5000)
    assert times == poisson_times(rate=50.0, count=5000)
    assert all(earlier < later for earlier, later in itertools.pairwise(times))
    assert len(times) / times[-1] == pytest.approx(50.0, rel=0.05)


def test_a_rate_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="rate is 0"):
        poisson_times(0, 1)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(1, 100))
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= share / 100 * len(values) - 1e-9
    smaller = [value for value in values if value < found]
    assert len(smaller) < share / 100 * len(values) + 1e-9


def test_the_hundredth_of_a_hundred_is_the_99th_percentile_of_nobody() -> None:
    assert percentile(range(1, 101), 99) == 99
    assert percentile([7.0], 50) == 7.0
