from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.decode.beam import BeamSearch, assign_rows
from service.engine.decode.types import DecodingOptions, DecodingRequest, Hypothesis
from tests.service.engine.decode.toy import BOS, EOS, hypotheses_of, log_probs_of, request_of


def run_beam(request: DecodingRequest) -> tuple[Hypothesis, ...]:
    """The search over whole prefixes instead of cache rows."""
    options = request.options
    search = BeamSearch(options, (EOS,))
    prefixes: list[tuple[int, ...]] = [(BOS,)] * options.beam_size
    while True:
        scores = np.stack([log_probs_of(prefix, request.source_ids) for prefix in prefixes])
        ids = np.argsort(-scores, axis=1, kind="stable")[:, : 2 * options.beam_size]
        step = search.advance(ids.tolist(), np.take_along_axis(scores, ids, 1).tolist())
        if step is None:
            return search.hypotheses
        prefixes = [(*prefixes[parent], token) for token, parent in zip(step.tokens, step.parents, strict=True)]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(3, 19), min_size=1, max_size=4).map(tuple),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    st.integers(1, 12),
    st.sampled_from(["always", "heuristic", "never"]),
    st.data(),
)
def test_searches_find_what_the_oracle_finds(
    source: tuple[int, ...],
    beam_size: int,
    length_penalty: float,
    max_new_tokens: int,
    early_stopping: str,
    data: st.DataObject,
) -> None:
    request = request_of(
        (BOS,),
        source,
        beam_size=beam_size,
        length_penalty=length_penalty,
        num_hypotheses=data.draw(st.integers(1, beam_size)),
        max_new_tokens=max_new_tokens,
        early_stopping=early_stopping,
        forces_end=data.draw(st.booleans()),
        num_forced_tokens=data.draw(st.integers(0, 1)),
    )
    assert list(run_beam(request)) == hypotheses_of(request)


@pytest.mark.parametrize(("rule", "is_finished"), [("always", True), ("heuristic", True), ("never", False)])
def test_when_a_search_ends_that_has_finished_its_hypotheses(rule: str, is_finished: bool) -> None:
    # Two have finished at -1.0 and -1.25; the best live beam has -2.5 after two tokens, and could be longer.
    options = DecodingOptions(2, 1.0, max_new_tokens=9, early_stopping=rule)  # type: ignore[arg-type]
    search = BeamSearch(options, (EOS,))
    assert search.advance([[EOS, 5, 6, 7]] * 2, [[-1.0, -2.0, -3.0, -4.0]] * 2)
    step = search.advance([[EOS, 5, 6, 7], [5, 6, 7, 8]], [[-0.5, -0.6, -3.0, -4.0], [-5.0, -6.0, -7.0, -8.0]])
    assert (step is None) == is_finished


def test_a_live_beam_that_may_still_win_goes_on() -> None:
    search = BeamSearch(DecodingOptions(2, 1.0, max_new_tokens=9, early_stopping="heuristic"), (EOS,))
    assert search.advance([[EOS, 5, 6, 7]] * 2, [[-3.0, -0.1, -0.2, -4.0]] * 2)
    step = search.advance([[EOS, 5, 6, 7]] * 2, [[-2.0, -0.1, -3.0, -4.0], [-3.0, -0.1, -3.0, -4.0]])
    assert step is not None


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
        {"max_new_tokens": -1},
        {"no_repeat_ngram_size": -1},
        {"num_forced_tokens": -1},
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


@pytest.mark.parametrize(("rule", "is_whole"), [("always", False), ("heuristic", True), ("never", True)])
def test_a_sentence_that_the_model_is_sure_of_is_not_cut(rule: str, is_whole: bool) -> None:
    """One sentence has nearly all the probability; its ends too early are as likely as any other token."""
    sentence = (5, 6, 7, 8, 9, 10, EOS)

    def next_log_probs(new: tuple[int, ...]) -> tuple[list[int], list[float]]:
        likely = sentence[len(new)] if new == sentence[: len(new)] and len(new) < len(sentence) else EOS
        others = [token for token in (EOS, *range(11, 20)) if token != likely]
        return [likely, *others], [-0.001] + [-7.0] * len(others)

    search = BeamSearch(DecodingOptions(4, max_new_tokens=20, early_stopping=rule), (EOS,))  # type: ignore[arg-type]
    step: object = True
    while step:
        ranked = [next_log_probs(history) for history in search.histories]
        step = search.advance([ids for ids, _ in ranked], [log_probs for _, log_probs in ranked])
    assert (search.hypotheses[0].token_ids == sentence[:-1]) == is_whole
