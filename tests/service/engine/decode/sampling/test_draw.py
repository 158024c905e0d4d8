from __future__ import annotations

import numpy as np
import pytest

from service.engine.decode.sampling.draw import draw, draw_among, generator_of


@pytest.mark.parametrize("size", [3, 256, 257, 1000])
def test_each_place_is_drawn_as_often_as_its_weight_says(size: int) -> None:
    random = np.random.default_rng(size)
    weights = random.exponential(size=size).astype(np.float32)
    weights[random.random(size) < 0.3] = 0.0
    num_draws = 20_000
    generator = generator_of(1)
    counts = np.bincount([draw(weights, generator) for _ in range(num_draws)], minlength=size)
    assert (counts[weights == 0] == 0).all()
    expected = num_draws * weights / weights.sum()
    drawn = weights > 0
    # Pearson's statistic has mean n - 1 and variance 2(n - 1): six standard deviations never happen by chance.
    freedom = int(drawn.sum()) - 1
    statistic = float(((counts - expected)[drawn] ** 2 / expected[drawn]).sum())
    assert abs(statistic - freedom) < 6 * np.sqrt(2 * freedom) + 6


def test_one_possible_place_is_always_drawn() -> None:
    weights = np.zeros(1000, np.float32)
    weights[999] = 1e-38
    generator = generator_of(None)
    assert {draw(weights, generator) for _ in range(50)} == {999}


def test_the_last_bits_of_the_weights_decide_nothing() -> None:
    """As they may differ with the batch: over a flat vocabulary, where a cumulative sum would often go astray."""
    random = np.random.default_rng(0)
    weights = np.exp(random.normal(scale=0.1, size=50_000)).astype(np.float32)
    noisy = weights * (1 + 1e-6 * random.normal(size=50_000)).astype(np.float32)
    first, second = generator_of(7), generator_of(7)
    assert [draw(weights, first) for _ in range(300)] == [draw(noisy, second) for _ in range(300)]


@pytest.mark.parametrize("size", [3, 256, 700])
def test_places_and_weights_lead_where_all_weights_do(size: int) -> None:
    random = np.random.default_rng(size)
    weights = random.exponential(size=size).astype(np.float32)
    weights[random.random(size) < 0.8] = 0.0
    weights[size // 2] = 1.0
    places = np.flatnonzero(weights)
    first, second = generator_of(3), generator_of(3)
    found = [draw_among(places, weights[places], size, first) for _ in range(300)]
    assert found == [draw(weights, second) for _ in range(300)]
    assert len(set(found)) > len(places) // 2


@pytest.mark.parametrize("seed", [0, -1, 2**64 - 2, -(2**63)])
def test_a_seed_gives_the_same_draws(seed: int) -> None:
    weights = np.ones(600, np.float32)
    streams = [[draw(weights, generator) for _ in range(20)] for generator in (generator_of(seed), generator_of(seed))]
    assert streams[0] == streams[1]
    assert streams[0] != [draw(weights, generator) for generator in [generator_of(5)] for _ in range(20)]
    assert len(set(streams[0])) > 10
