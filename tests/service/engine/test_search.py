from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.search import BeamSearch, GreedySearch, assign_rows
from service.engine.types import DecodingOptions, Hypothesis
from tests.service.engine.toy import BOS, EOS, log_probs, oracle


def run_greedy(source: tuple[int, ...], options: DecodingOptions) -> tuple[Hypothesis, ...]:
    search, prefix = GreedySearch(options, EOS), [BOS]
    while True:
        scores = log_probs(source, tuple(prefix))
        prefix.append(int(scores.argmax()))
        if not search.advance(prefix[-1], float(scores[prefix[-1]])):
            return search.hypotheses


def run_beam(source: tuple[int, ...], options: DecodingOptions) -> tuple[Hypothesis, ...]:
    """The search over whole prefixes instead of cache rows."""
    search = BeamSearch(options, (EOS,))
    prefixes: list[tuple[int, ...]] = [(BOS,)] * options.beam_size
    while True:
        scores = np.stack([log_probs(source, prefix) for prefix in prefixes])
        ids = np.argsort(-scores, axis=1, kind="stable")[:, : 2 * options.beam_size]
        step = search.advance(ids.tolist(), np.take_along_axis(scores, ids, 1).tolist())
        if step is None:
            return search.hypotheses
        prefixes = [(*prefixes[parent], token) for token, parent in zip(step.tokens, step.parents, strict=True)]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(3, 19), min_size=1, max_size=4).map(tuple),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    st.integers(1, 12),
    st.data(),
)
def test_searches_find_what_the_oracle_finds(
    source: tuple[int, ...], beam_size: int, length_penalty: float, max_new_tokens: int, data: st.DataObject
) -> None:
    options = DecodingOptions(beam_size, length_penalty, data.draw(st.integers(1, beam_size)), max_new_tokens)
    run = run_greedy if beam_size == 1 else run_beam
    assert list(run(source, options)) == oracle(source, options)


def test_greedy_ends_at_the_end_token() -> None:
    search = GreedySearch(DecodingOptions(max_new_tokens=9), EOS)
    assert search.advance(7, -0.5)
    assert search.advance(8, -0.5)
    assert not search.advance(EOS, -2.0)
    assert search.hypotheses == (Hypothesis((7, 8), -1.0, True),)


def test_greedy_ends_at_max_new_tokens() -> None:
    search = GreedySearch(DecodingOptions(max_new_tokens=2, length_penalty=0.0), EOS)
    assert search.advance(7, -0.5)
    assert not search.advance(8, -0.25)
    assert search.hypotheses == (Hypothesis((7, 8), -0.75, False),)


def test_an_end_token_beyond_the_beam_finishes_nothing() -> None:
    search = BeamSearch(DecodingOptions(beam_size=2, max_new_tokens=9), (EOS,))
    step = search.advance([[5, 6, EOS, 7]] * 2, [[-1.0, -2.0, -3.0, -4.0]] * 2)
    assert step is not None
    assert step.tokens == [5, 6]
    assert search.hypotheses == ()


def test_a_finished_beam_makes_room_for_the_next_best() -> None:
    search = BeamSearch(DecodingOptions(beam_size=2, max_new_tokens=9), (EOS,))
    step = search.advance([[EOS, 5, 6, 7]] * 2, [[-1.0, -2.0, -3.0, -4.0]] * 2)
    assert step is not None
    assert step.tokens == [5, 6]
    assert search.hypotheses == (Hypothesis((), -1.0, True),)


@pytest.mark.parametrize(("length_penalty", "best"), [(0.0, ()), (2.0, (5,))])
def test_the_length_penalty_chooses_between_short_and_long(length_penalty: float, best: tuple[int, ...]) -> None:
    search = BeamSearch(DecodingOptions(2, length_penalty, num_hypotheses=2, max_new_tokens=9), (EOS,))
    assert search.advance([[EOS, 5, 6, 7]] * 2, [[-1.0, -1.5, -3.0, -4.0]] * 2)
    assert search.advance([[EOS, 5, 6, 7]] * 2, [[-0.5, -3.0, -4.0, -5.0]] * 2) is None
    assert search.hypotheses[0].token_ids == best
    assert len(search.hypotheses) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"beam_size": 0},
        {"num_hypotheses": 0},
        {"beam_size": 2, "num_hypotheses": 3},
        {"max_new_tokens": 0},
        {"length_penalty": -0.1},
        {"length_penalty": 1e6},
        {"length_penalty": float("nan")},
    ],
)
def test_options_that_no_search_can_have(fields: dict[str, float]) -> None:
    name, value = list(fields.items())[-1]
    with pytest.raises(ValueError, match=f"{name} is {value}; it must"):
        DecodingOptions(**fields)  # type: ignore[arg-type]


@given(st.integers(1, 8).flatmap(lambda size: st.lists(st.integers(0, size - 1), min_size=size, max_size=size)))
def test_rows_of_beams(parents: list[int]) -> None:
    rows, copies = assign_rows(parents)
    content = list(range(len(parents)))
    for source, destination in copies:
        content[destination] = content[source]
    assert [content[row] for row in rows] == parents
    assert sorted(rows) == list(range(len(parents)))
    assert len(copies) == len(parents) - len(set(parents))
    assert not {source for source, _ in copies} & {destination for _, destination in copies}
