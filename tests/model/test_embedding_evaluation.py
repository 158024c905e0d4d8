import math

import numpy as np
import pytest

from model import embedding_evaluation
from model.checkpoint import Checkpoint
from model.data import ScoredPair
from model.embedding_evaluation import retrieval_accuracy, spearman, sts_spearman
from model.tokenizer import Tokenizer
from tests.model.samples import make_model


def test_spearman_of_known_ranks() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    # IQ and hours of television, Wikipedia's worked example: rho = -29/165.
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)


def test_spearman_gives_equal_values_the_mean_of_their_ranks() -> None:
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert spearman([0, 5, 5, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


@pytest.fixture
def checkpoint(tokenizer: Tokenizer) -> Checkpoint:
    return Checkpoint(make_model(architecture="encoder", vocab_size=tokenizer.vocab_size), tokenizer, {})


def test_retrieval_counts_nearest_neighbours_each_way(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    angles = {"a": 0, "b": 40, "c": 90, "A": 5, "B": 10, "C": 80}
    vectors = {text: [math.cos(math.radians(angle)), math.sin(math.radians(angle))] for text, angle in angles.items()}
    monkeypatch.setattr(
        embedding_evaluation, "embed_texts", lambda checkpoint, texts: np.array([vectors[text] for text in texts])
    )
    # a's nearest is A, b's is B, c's is C; A's is a, but B's is a too, and C's is c.
    there, back = retrieval_accuracy(checkpoint, [("a", "A"), ("b", "B"), ("c", "C")])
    assert there == 1.0
    assert back == pytest.approx(2 / 3)
    scored = [ScoredPair(5.0, "a", "A"), ScoredPair(1.0, "b", "c"), ScoredPair(4.0, "b", "B")]
    assert sts_spearman(checkpoint, scored) == pytest.approx(1.0)
