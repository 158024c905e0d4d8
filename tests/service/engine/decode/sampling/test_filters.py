"""Each filter against its definition, and against `transformers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, TypicalLogitsWarper

from service.engine.decode.sampling.filters import Filter, MinP, TopK, TopP, TypicalP, _argsort

Logits = np.ndarray[Any, np.dtype[np.float32]]

logits = st.builds(
    lambda seed, size, scale: (scale * np.random.default_rng(seed).normal(size=size)).astype(np.float32),
    st.integers(0, 10_000),
    st.integers(2, 300),
    st.sampled_from([0.01, 0.5, 3.0, 12.0]),
)
shares = st.floats(0.01, 0.99)
_MARGIN = 1e-5
"""A sum so near to the bound may fall to either side of it."""


def kept_by(warper: Any, values: Logits) -> set[int]:
    scores = warper(torch.zeros(1, 0, dtype=torch.int64), torch.tensor(values)[None])[0]
    return set(torch.isfinite(scores).nonzero()[:, 0].tolist())


def kept(keep: Filter, values: Logits) -> set[int]:
    places = keep(np.exp(values - values.max()))
    assert (np.diff(places) > 0).all()
    return set(places.tolist())


def probabilities(values: Logits) -> Any:
    weights = np.exp(values.astype(np.float64) - values.max())
    return weights / weights.sum()


def fewest(probs: Any, order: Any, mass: float) -> set[int]:
    """The first tokens of `order` whose probabilities sum to `mass`; skips what rounding decides."""
    sums = probs[order].cumsum()
    assume((np.abs(sums[:-1] - mass) > _MARGIN).all())
    return set(order[: int((sums < mass).sum()) + 1].tolist())


@given(logits, st.integers(1, 400))
def test_top_k(values: Logits, k: int) -> None:
    found = kept(TopK(k), values)
    order = np.argsort(-values, kind="stable")
    assert found >= set(order[:k].tolist())
    weights = np.exp(values - values.max())
    assume(len(np.unique(weights)) == len(weights))
    assert found == set(order[:k].tolist())
    assert found == kept_by(TopKLogitsWarper(k), values)


@given(logits, shares)
def test_top_p(values: Logits, mass: float) -> None:
    probs = probabilities(values)
    assume(len(np.unique(values)) == len(values))
    found = kept(TopP(mass), values)
    assert found == fewest(probs, np.argsort(-values), mass)
    assert found == kept_by(TopPLogitsWarper(mass), values)


@given(logits, st.floats(0.001, 1.0))
def test_min_p(values: Logits, share: float) -> None:
    probs = probabilities(values)
    assume((np.abs(probs - share * probs.max()) > _MARGIN * probs.max()).all() or share == 1.0)
    found = kept(MinP(share), values)
    assert found == set(np.flatnonzero(probs >= share * probs.max()).tolist())
    assert found == kept_by(MinPLogitsWarper(share), values)


@given(logits, shares)
def test_typical_p(values: Logits, mass: float) -> None:
    probs = probabilities(values)
    surprise = -np.log(np.maximum(probs, 1e-300))
    distances = np.abs(surprise - (probs * surprise).sum())
    assume((np.diff(np.sort(distances)) > _MARGIN).all())
    found = kept(TypicalP(mass), values)
    assert found == fewest(probs, np.argsort(distances), mass)
    assert found == kept_by(TypicalLogitsWarper(mass), values)


@given(st.lists(st.floats(0, width=32), min_size=1, max_size=50))
def test_argsort(values: list[float]) -> None:
    array = np.array(values, np.float32) + np.float32(0)  # no -0.0
    np.testing.assert_array_equal(_argsort(array), np.argsort(array, kind="stable"))


def test_equals_are_kept_together() -> None:
    values = np.zeros(8, np.float32)
    for keep in (TopK(2), TopP(0.3), MinP(1.0), TypicalP(0.3)):
        assert kept(keep, values) == set(range(8))


def test_impossible_tokens_are_no_obstacle() -> None:
    values = np.array([1.0, -np.inf, 0.0, -2000.0], np.float32)
    assert kept(TypicalP(0.999), values) == {0, 2}
    assert kept(TopP(0.999), values) == {0, 2}
    assert kept(TopP(0.1), values) == kept(MinP(0.9), values) == {0}
