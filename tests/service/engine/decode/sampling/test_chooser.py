from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.engine.decode.sampling.chooser import TokenChooser, best_tokens
from service.engine.decode.sampling.options import SamplingOptions

V = 40
LOGITS = np.random.default_rng(3).normal(scale=2, size=V).astype(np.float32)


def log_probs(logits: Any) -> Any:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def drawn(options: SamplingOptions, num_draws: int = 400) -> set[int]:
    chooser = TokenChooser(options, (1, 2))
    return {chooser.choose(LOGITS).token_id for _ in range(num_draws)}


def test_greedy_takes_the_models_own_ranking() -> None:
    chooser = TokenChooser(SamplingOptions(), (1,), top_n_tokens=2)
    assert not chooser.needs_logits
    assert chooser.num_candidates == 2
    assert chooser.take([7, 5, 3], [-0.5, -1.5, -2.5]) == (7, -0.5, ((7, -0.5), (5, -1.5)))
    assert TokenChooser(SamplingOptions(), (1,)).take([7], [-0.5]) == (7, -0.5, ())


def test_greedy_after_penalties() -> None:
    best, second = np.argsort(-LOGITS)[:2].tolist()
    chooser = TokenChooser(SamplingOptions(logit_bias=((best, -100.0),)), (), top_n_tokens=1)
    assert chooser.needs_logits
    choice = chooser.choose(LOGITS)
    changed = LOGITS.copy()
    changed[best] -= 100
    assert choice.token_id == second
    assert choice.log_prob == pytest.approx(log_probs(changed)[second], abs=1e-5)
    assert choice.top_tokens == ((second, choice.log_prob),)


def test_a_penalty_remembers_what_was_written() -> None:
    order = np.argsort(-LOGITS).tolist()
    chooser = TokenChooser(SamplingOptions(presence_penalty=50.0), (order[0],))
    assert [chooser.choose(LOGITS).token_id for _ in range(5)] == order[:5]
    chooser = TokenChooser(SamplingOptions(repetition_penalty=99.0), (order[0],))
    assert [chooser.choose(LOGITS).token_id for _ in range(2)] == order[1:3]


def test_a_draw_has_the_log_probability_of_the_whole_vocabulary_at_its_temperature() -> None:
    chooser = TokenChooser(SamplingOptions(do_sample=True, temperature=0.7, top_k=3, seed=1), (), top_n_tokens=5)
    expected = log_probs(LOGITS / np.float32(0.7))
    order = np.argsort(-LOGITS).tolist()
    for _ in range(20):
        choice = chooser.choose(LOGITS)
        assert choice.token_id in order[:3]
        assert choice.log_prob == pytest.approx(expected[choice.token_id], abs=1e-5)
        assert [token for token, _ in choice.top_tokens] == order[:5]
        assert [value for _, value in choice.top_tokens] == pytest.approx(expected[order[:5]], abs=1e-5)


def test_filters_follow_one_another() -> None:
    order = np.argsort(-LOGITS).tolist()
    assert drawn(SamplingOptions(do_sample=True, top_k=4)) == set(order[:4])
    probs = np.exp(log_probs(LOGITS[order[:4]]))
    mass = float(probs[:2].sum()) - 1e-3  # of what top_k leaves
    assert drawn(SamplingOptions(do_sample=True, top_k=4, top_p=mass)) == set(order[:2])
    assert drawn(SamplingOptions(do_sample=True, top_k=4, min_p=float(probs[2] / probs[0]) - 1e-3)) == set(order[:3])
    assert drawn(SamplingOptions(do_sample=True, top_k=4, typical_p=1e-6)) <= set(order[:4])
    assert len(drawn(SamplingOptions(do_sample=True, temperature=50.0), 2000)) == V


def test_equal_seeds_choose_equally() -> None:
    options = SamplingOptions(do_sample=True, temperature=2.0, seed=11)
    first, second = (TokenChooser(options, ()) for _ in range(2))
    assert [first.choose(LOGITS) for _ in range(30)] == [second.choose(LOGITS) for _ in range(30)]


def test_best_tokens_of_a_tie_are_those_of_the_smaller_ids() -> None:
    assert [token for token, _ in best_tokens(np.zeros(3, np.float32), 3, 0.0)] == [0, 1, 2]
    assert best_tokens(np.zeros(2, np.float32), 5, 1.0) == ((0, -1.0), (1, -1.0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; it must be greater than 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"top_k": -1}, "top_k is -1; it must be at least 1"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be greater than 0 and at most 1"),
        ({"typical_p": 1.5}, "typical_p is 1.5; it must be greater than 0 and at most 1"),
        ({"min_p": -0.1}, "min_p is -0.1; it must lie between 0 and 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; it must be greater than 0"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty is nan; it must lie between ±100"),
        ({"presence_penalty": 101.0}, "presence_penalty is 101.0; it must lie between ±100"),
        ({"logit_bias": ((3, float("nan")),)}, "logit_bias of token 3 is nan; it must lie between ±100"),
        ({"logit_bias": ((-1, 1.0),)}, "logit_bias of token -1 is 1.0"),
        ({"seed": 2**64}, "seed is 18446744073709551616; it must be an integer of 64 bits"),
    ],
)
def test_options_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingOptions(**values)
