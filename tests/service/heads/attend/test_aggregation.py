from __future__ import annotations

import numpy as np
import pytest

from service.heads.attend.aggregation import over_heads, rollout, row_fault

HEADS = np.array([[[0.5, 0.5], [0.2, 0.8]], [[0.1, 0.9], [0.6, 0.4]]], np.float32)


def test_none_keeps_the_heads() -> None:
    assert over_heads(HEADS, "none") is HEADS


def test_mean_and_max_are_over_the_heads_of_a_layer() -> None:
    np.testing.assert_allclose(over_heads(HEADS, "mean"), [[[0.3, 0.7], [0.4, 0.6]]], atol=1e-7)
    np.testing.assert_allclose(over_heads(HEADS, "max"), [[[0.5, 0.9], [0.6, 0.8]]], atol=1e-7)


def test_rollout_against_a_hand_computation() -> None:
    # Layer 0: heads average to [[.3 .7] [.4 .6]], with the residual [[.65 .35] [.2 .8]].
    # Layer 1: heads average to [[1 0] [.5 .5]], with the residual [[1 0] [.25 .75]].
    second = np.array([[[1, 0], [1, 0]], [[1, 0], [0, 1]]], np.float32)
    found = rollout({0: HEADS, 1: second}, [0, 1])
    np.testing.assert_allclose(found[0], [[[0.65, 0.35], [0.2, 0.8]]], atol=1e-6)
    # [.25 .75] times the first layer's flow: .25 x .65 + .75 x .2, and .25 x .35 + .75 x .8
    np.testing.assert_allclose(found[1], [[[0.65, 0.35], [0.3125, 0.6875]]], atol=1e-6)


def test_rollout_gives_the_wanted_layers_alone_and_rows_sum_to_one() -> None:
    random = np.random.default_rng(0).dirichlet(np.ones(5), (4, 3, 5)).astype(np.float32)
    found = rollout(dict(enumerate(random)), [3])
    assert list(found) == [3]
    assert found[3].shape == (1, 5, 5)
    np.testing.assert_allclose(found[3].sum(-1), 1, atol=1e-6)


def test_rollout_of_a_causal_decoder_stays_causal() -> None:
    weights = np.random.default_rng(1).random((3, 2, 6, 6)) * np.tri(6)
    layers = dict(enumerate((weights / weights.sum(-1, keepdims=True)).astype(np.float32)))
    flow = rollout(layers, [2])[2][0]
    assert not np.triu(flow, 1).any()
    np.testing.assert_allclose(flow.sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "fault"),
    [
        ([[0.5, 0.4]], "a row differs from the sum of one by 0.1"),
        ([[1.5, -0.5]], "a weight is -0.5, below zero"),
        ([[np.nan, 1.0]], "a weight is not a finite number"),
    ],
)
def test_rows_that_are_no_shares_are_told(weights: list[list[float]], fault: str) -> None:
    assert row_fault(np.array([weights], np.float32)) == fault


def test_rows_of_shares_are_fine() -> None:
    assert row_fault(HEADS) is None
    assert row_fault(np.zeros((2, 0, 3), np.float32)) is None
