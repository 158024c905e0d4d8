import math
from collections.abc import Callable, Sequence

import pytest
import torch

from model import reference
from model.decoding import beam_search, pad, translate_ids
from model.transformer import Transformer
from tests.model.samples import make_model, random_rows

LENGTHS = [1, 7, 3, 12, 5, 9]


def decoding_model(seed: int) -> Transformer:
    """A random model that ends its sentences now and then, neither at once nor never."""
    model = make_model(seed)
    with torch.no_grad():
        model.final_bias[model.config.eos_id] = (-0.5, 1.5, 2.5)[seed % 3]
    return model


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("beam_size", "length_penalty"), [(1, 1.0), (2, 1.0), (4, 0.0), (4, 0.6), (3, 1.5)])
def test_batched_search_equals_the_reference(seed: int, beam_size: int, length_penalty: float) -> None:
    model, sources = decoding_model(seed), random_rows(LENGTHS, seed=seed)
    results = beam_search(model, sources, beam_size, length_penalty, max_new_tokens=8)
    for source, result in zip(sources, results, strict=True):
        wanted = reference.beam(model, source, beam_size, 8, length_penalty)[0]
        assert result.token_ids == wanted.token_ids
        assert result.score == pytest.approx(wanted.score, abs=1e-4)


def test_samples_end_early_and_late_and_are_cut() -> None:
    """Or the tests above would prove little."""
    counts = [
        len(reference.greedy(decoding_model(seed), source, 8))
        for seed in range(3)
        for source in random_rows(LENGTHS, seed=seed)
    ]
    assert 8 in counts
    assert len({count for count in counts if count < 8}) >= 3


def test_each_source_has_its_own_limit_by_default() -> None:
    model, sources = decoding_model(0), random_rows([1, 4], seed=3)
    for source, result in zip(sources, beam_search(model, sources), strict=True):
        assert result.token_ids == reference.greedy(model, source, min(2 * len(source) + 10, 32))


def test_a_limit_beyond_the_positions_is_cut_to_them() -> None:
    model = make_model(max_seq_len=6)
    with torch.no_grad():
        model.final_bias[model.config.eos_id] = -100
    assert [len(result.token_ids) for result in beam_search(model, [[4, 5]], 2, max_new_tokens=99)] == [6]


def test_many_sources_are_answered_in_their_order() -> None:
    model, sources = decoding_model(1), random_rows([3, 9, 1, 6, 2], seed=4)
    wanted = [beam_search(model, [source], 2)[0].token_ids for source in sources]
    assert translate_ids(model, sources, beam_size=2, max_batch_rows=4) == wanted
    assert translate_ids(model, []) == []


def scripted(monkeypatch: pytest.MonkeyPatch, probabilities: Callable[[list[int]], dict[int, float]]) -> Transformer:
    """A model whose next tokens are given: token -> probability by prefix; the other tokens share what is left."""
    model = make_model(vocab_size=12)

    def next_log_probs(
        model: Transformer, source: object, prefix: list[int], suppressed: Sequence[int] = ()
    ) -> list[float]:
        given = probabilities(prefix[1:])
        rest = (1 - sum(given.values())) / (12 - len(given))
        return [math.log(given.get(token, rest)) for token in range(12)]

    monkeypatch.setattr(reference, "next_log_probs", next_log_probs)
    return model


def test_beam_finds_what_greedy_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {(): {5: 0.5, 6: 0.4}, (5,): {7: 0.3}, (6,): {2: 0.9}}
    model = scripted(monkeypatch, lambda prefix: table.get(tuple(prefix), {2: 0.8}))
    assert reference.greedy(model, None, 5) == [5, 7]
    assert reference.beam(model, None, 2, 5, length_penalty=0.0)[0].token_ids == [6]


def test_an_end_counts_only_among_the_first_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    # The end is third of the continuations: within 2 x beam_size, but not within beam_size.
    table: dict[tuple[int, ...], dict[int, float]] = {(): {5: 0.5, 6: 0.3, 2: 0.19}}
    model = scripted(monkeypatch, lambda prefix: table.get(tuple(prefix), {2: 0.9}))
    found = reference.beam(model, None, 2, 5, length_penalty=0.0, num_hypotheses=9)
    assert [hypothesis.token_ids for hypothesis in found] == [[5], [6]]


def test_live_hypotheses_count_as_they_stand_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = scripted(monkeypatch, lambda prefix: {5: 0.6, 6: 0.3})
    found = reference.beam(model, None, 2, 3, num_hypotheses=2)
    assert found[0].token_ids == [5, 5, 5]
    assert found[0].score == pytest.approx(math.log(0.6))
    assert len(found) == 2


def test_length_penalty_prefers_longer_hypotheses(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {(): {2: 0.3, 5: 0.6}, (5,): {6: 0.6}, (5, 6): {2: 0.6}}
    model = scripted(monkeypatch, lambda prefix: table.get(tuple(prefix), {2: 0.6}))
    assert reference.beam(model, None, 2, 6, length_penalty=0.0)[0].token_ids == []
    assert reference.beam(model, None, 2, 6, length_penalty=2.0)[0].token_ids == [5, 6]


@torch.inference_mode()
def test_a_prompt_is_continued_by_a_decoder() -> None:
    model = make_model(architecture="decoder")
    model.final_bias[model.config.eos_id] = -100
    found = reference.greedy(model, None, 4, prompt=[5, 6])
    log_probs = model.project(model(torch.tensor([[5, 6, *found[:-1]]])))[0]
    assert found == log_probs[1:].argmax(-1).tolist()


def test_rows_are_padded_on_the_right() -> None:
    padded = pad([[1, 2, 3], [4]], 9)
    assert padded.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert padded.dtype == torch.int64
