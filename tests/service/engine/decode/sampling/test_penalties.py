"""Each change of the logits against its definition, and against `transformers` where that has it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper

from service.engine.decode.sampling.penalties import (
    FrequencyPenalty,
    History,
    LogitBias,
    LogitsProcessor,
    PresencePenalty,
    RepetitionPenalty,
    Temperature,
)

V = 12
ids = st.lists(st.integers(0, V - 1), max_size=20)
seeds = st.integers(0, 1000)


def logits_of(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(scale=3, size=V).astype(np.float32)


def history_of(prompt: list[int], output: list[int]) -> History:
    history = History(prompt)
    for token in output:
        history.add(token)
    return history


@given(seeds, ids, ids, st.floats(0.1, 5.0))
def test_repetition_penalty(seed: int, prompt: list[int], output: list[int], penalty: float) -> None:
    logits = logits_of(seed)
    found = RepetitionPenalty(penalty)(logits, history_of(prompt, output))
    expected = [
        (x / penalty if x > 0 else x * penalty) if token in prompt + output else x for token, x in enumerate(logits)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    if text := prompt + output:
        theirs = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([text]), torch.tensor(logits)[None])
        np.testing.assert_allclose(found, theirs[0].numpy(), rtol=1e-5)


@given(seeds, ids, ids, st.floats(-2, 2))
def test_frequency_penalty_counts_the_output_alone(
    seed: int, prompt: list[int], output: list[int], penalty: float
) -> None:
    logits = logits_of(seed)
    found = FrequencyPenalty(penalty)(logits, history_of(prompt, output))
    expected = [x - penalty * output.count(token) for token, x in enumerate(logits)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@given(seeds, ids, ids, st.floats(-2, 2))
def test_presence_penalty_counts_the_output_alone(
    seed: int, prompt: list[int], output: list[int], penalty: float
) -> None:
    logits = logits_of(seed)
    found = PresencePenalty(penalty)(logits, history_of(prompt, output))
    expected = [x - penalty * (token in output) for token, x in enumerate(logits)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@given(seeds, st.lists(st.tuples(st.integers(0, V - 1), st.floats(-100, 100)), max_size=20))
def test_logit_bias(seed: int, biases: list[tuple[int, float]]) -> None:
    logits = logits_of(seed)
    expected = [x + sum(bias for token, bias in biases if token == place) for place, x in enumerate(logits)]
    np.testing.assert_allclose(LogitBias(biases)(logits, History(())), expected, rtol=1e-4, atol=1e-3)


@given(seeds, st.floats(0.05, 20))
def test_temperature(seed: int, temperature: float) -> None:
    logits = logits_of(seed)
    found = Temperature(temperature)(logits, History(()))
    theirs = TemperatureLogitsWarper(temperature)(torch.zeros(1, 0, dtype=torch.int64), torch.tensor(logits)[None])[0]
    np.testing.assert_allclose(found - found.max(), theirs.numpy() - theirs.numpy().max(), rtol=1e-4, atol=1e-4)
    weights = np.exp(logits.astype(np.float64)) ** (1 / temperature)
    np.testing.assert_allclose(np.exp(found) / np.exp(found).sum(), weights / weights.sum(), rtol=1e-3, atol=1e-7)


def test_the_least_temperature_is_greedy_and_no_nan() -> None:
    logits = logits_of(0)
    found = Temperature(5e-324)(logits, History(()))
    assert not np.isnan(found).any()
    np.testing.assert_array_equal(np.exp(found), np.arange(V) == logits.argmax())


@pytest.mark.parametrize(
    "processor",
    [LogitBias([(1, 2.0)]), RepetitionPenalty(2.0), FrequencyPenalty(1.0), PresencePenalty(1.0), Temperature(0.5)],
)
def test_the_logits_themselves_are_left_alone(processor: LogitsProcessor) -> None:
    logits = logits_of(0)
    changed = processor(logits, history_of([1], [1, 2]))
    assert changed.dtype == np.float32
    assert not np.array_equal(changed, logits)
    np.testing.assert_array_equal(logits, logits_of(0))
