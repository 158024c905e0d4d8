import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.ngram import Discounts, KneserNey, main

DISCOUNTS: list[Discounts] = [(0.5, 0.6, 0.7), (0.4, 0.7, 0.9), (0.3, 0.8, 1.1)]


def by_definition(ids: Sequence[int], history: Sequence[int], token: int, vocab_size: int, order: int) -> float:
    """Chen and Goodman's equations 25 to 27, written down as they stand, with the counts of `ids`."""
    ngrams = [[tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)] for n in range(1, order + 1)]

    def count(ngram: tuple[int, ...]) -> int:
        n = len(ngram)
        if n == order:
            return ngrams[n - 1].count(ngram)
        return len({longer[0] for longer in ngrams[n] if longer[1:] == ngram}) or int(ngram == tuple(ids[:n]))

    def probability(context: tuple[int, ...]) -> float:
        below = probability(context[1:]) if context else 1 / vocab_size
        counts = [count((*context, follower)) for follower in range(vocab_size)]
        if not sum(counts):
            return below
        taken = [(0.0, *DISCOUNTS[len(context)])[min(number, 3)] for number in counts]
        return (counts[token] - taken[token] + sum(taken) * below) / sum(counts)

    return probability(tuple(history[len(history) - order + 1 :] if len(history) >= order else history))


@pytest.fixture(scope="module")
def text() -> list[int]:
    generator = np.random.default_rng(3)
    return [int(token) for token in generator.choice(5, 60, p=[0.4, 0.3, 0.15, 0.1, 0.05])]


def test_probabilities_are_those_of_the_definition(text: list[int]) -> None:
    model = KneserNey(text, 6, 3, DISCOUNTS)
    other = [0, 1, 5, 2, 0, 0, 4, 4, 3, 1]  # 5 was never seen
    wanted = [math.log(by_definition(text, other[:index], token, 6, 3)) for index, token in enumerate(other)]
    np.testing.assert_allclose(model.log_probs(other), wanted, rtol=1e-12)


@pytest.mark.parametrize("history", [[], [0], [1, 0], [4, 4], [5, 5], [0, 5], [3, 2, 1, 0]])
def test_the_probabilities_after_any_context_sum_to_one(text: list[int], history: list[int]) -> None:
    model = KneserNey(text, 6, 3, DISCOUNTS)
    total = sum(math.exp(model.log_probs([*history, token])[-1]) for token in range(6))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_a_bigram_model_by_hand() -> None:
    # 0 1 0 1 2: bigrams 01 twice, 10 once, 12 once. Continuations: 0 after {1}, 1 after {0}, 2 after {1}: one each.
    model = KneserNey([0, 1, 0, 1, 2], 3, 2, [(0.5, 0.5, 0.5), (0.5, 0.75, 1.0)])
    unigram = (1 - 0.5) / 3 + 1.5 / 3 / 3  # the same for all three
    after_one = (1 - 0.5) / 2 + 2 * 0.5 / 2 * unigram
    after_zero = (2 - 0.75) / 2 + 0.75 / 2 * unigram
    np.testing.assert_allclose(np.exp(model.log_probs([0, 1, 2])), [unigram, after_zero, after_one])


def test_discounts_come_from_counts_of_counts() -> None:
    # Unigrams that come once (5 of them), twice (4), three times (3), four times (2).
    tokens = [token for count, kinds in ((1, "abcde"), (2, "fghi"), (3, "jkl"), (4, "mn")) for token in kinds * count]
    ids = [ord(token) - ord("a") for token in tokens]
    model = KneserNey(ids, 14, 1)
    share = 5 / (5 + 2 * 4)
    wanted = [1 - 2 * share * 4 / 5, 2 - 3 * share * 3 / 4, 3 - 4 * share * 2 / 3]
    [unigrams] = model.orders
    got = [count - unigrams.discounted[ord(token) - ord("a")] for count, token in ((1, "a"), (2, "f"), (3, "j"))]
    np.testing.assert_allclose(got, wanted)
    with pytest.raises(ValueError, match="too little text: 2, 0, 0 and 0 1-grams have counts of 1 to 4"):
        KneserNey([0, 1, 0, 1], 2, 2)


def test_a_pattern_is_foretold_better_by_more_context() -> None:
    generator = np.random.default_rng(0)
    chunks = [[7, 3, 9, 1], [2, 3, 9, 5], [8, 8, 4]]
    text = [token for index in generator.integers(0, 3, 400) for token in [*chunks[index], int(generator.integers(10))]]
    train, dev = text[:1500], text[1500:]
    values = [-KneserNey(train, 10, order, DISCOUNTS[:1] * order).log_probs(dev).mean() for order in (1, 2, 3)]
    assert values[2] < values[1] < values[0]


def test_bad_input_ends_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "a.txt", "b.txt"]) == 2
    assert "is not a checkpoint" in capsys.readouterr().err
