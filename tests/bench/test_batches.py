from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from bench.batches import compare_outputs, num_sentences, run_cases
from bench.decoding import Job, Settings, Source, Threads, thread_choices


class Fixed:
    """Answers every source with what a table says, and notes the size of each batch."""

    threads = Threads(1, 1)

    def __init__(self, name: str, answers: dict[Source, list[int]]) -> None:
        self.name = name
        self._answers = answers
        self.batches: list[int] = []

    def job(self, sources: Sequence[Source], settings: Settings) -> Job:
        def run() -> list[list[int]]:
            self.batches.append(len(sources))
            return [self._answers[source] for source in sources]

        return run

    def tokens(self, answer: Any) -> list[list[int]]:
        return list(answer)

    def submit(self, source: Source, settings: Settings) -> Future[Any]:
        raise NotImplementedError

    def close(self) -> None:
        return None


SOURCES: list[Source] = [(0,), (1,), (2,), (3,)]


def test_equal_outputs_are_told_from_different_ones() -> None:
    ours = Fixed("ours", {(0,): [1, 2], (1,): [3, 4], (2,): [5], (3,): [6, 7, 8]})
    theirs = Fixed("theirs", {(0,): [1, 2], (1,): [3, 9], (2,): [5, 5], (3,): [6, 7, 8]})
    agreement = compare_outputs(ours, theirs, "fp32", SOURCES, Settings(1, 8))
    assert agreement.equal_sentences == 0.5
    # Of nine places, one has another token and one has a token on one side only.
    assert agreement.equal_tokens == pytest.approx(7 / 9)


def test_cases_cut_the_sources_into_batches_of_one_size() -> None:
    answers = {source: [1, 2, 3] for source in SOURCES}
    ours, theirs = Fixed("ours", answers), Fixed("theirs", answers)
    results = run_cases([ours], [theirs], "fp32", SOURCES, 8, rounds=2, batch_sizes=(1, 2), beam_sizes=(1,))
    assert [(result.batch_size, result.beam_size) for result in results] == [(1, 1), (2, 1)]
    assert set(ours.batches) == {1, 2}
    assert ours.batches == theirs.batches
    for result in results:
        assert result.ours.tokens_per_second == pytest.approx(3 * result.ours.sentences_per_second)


@pytest.mark.parametrize(
    ("batch_size", "available", "expected"), [(1, 64, 16), (8, 64, 32), (32, 64, 32), (64, 64, 64)]
)
def test_a_case_decodes_whole_batches(batch_size: int, available: int, expected: int) -> None:
    assert num_sentences(batch_size, available) == expected


def test_threads_are_shared_evenly_in_every_way() -> None:
    assert [str(choice) for choice in thread_choices(4)] == ["4x1", "2x2", "1x4"]
    assert [str(choice) for choice in thread_choices(3)] == ["3x1", "1x3"]
