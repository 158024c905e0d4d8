from typing import Any

import numpy as np
import pytest

from model.corpus.augmentation import Augmentation, augment
from model.corpus.numbers import facts
from tests.model.samples import PAIRS

Pairs = list[tuple[str, str]]


def changed(pairs: Pairs, languages: tuple[str, str] = ("en", "de"), seed: int = 1, **shares: Any) -> Pairs:
    return augment(pairs, Augmentation(**shares), languages, np.random.default_rng(seed))


def test_nothing_asked_for_changes_nothing() -> None:
    assert changed(PAIRS) == PAIRS


def test_the_same_generator_gives_the_same_pairs() -> None:
    shares: Any = {"joined": 0.5, "number_sentences": 0.5, "lower_case": 0.2}
    assert changed(PAIRS, seed=3, **shares) == changed(PAIRS, seed=3, **shares) != changed(PAIRS, seed=4, **shares)


def test_joined_pairs_hold_the_same_text_in_the_same_order() -> None:
    joined = changed(PAIRS, joined=1.0)
    assert len(joined) < len(PAIRS)
    for side in (0, 1):
        assert " ".join(pair[side] for pair in joined) == " ".join(pair[side] for pair in PAIRS)


def test_a_name_becomes_the_same_name_on_both_sides() -> None:
    pairs = [("Tom's dog likes Mary.", "Toms Hund mag Mary.")] * 50 + [("Tom sleeps.", "Er schläft.")]
    result = changed(pairs, names=1.0)
    assert result[-1] == pairs[-1]
    for english, german in result[:-1]:
        owner, liked = english.removesuffix(".").split("'s dog likes ")
        assert german == f"{owner}s Hund mag {liked}."
    assert len(set(result)) > 30


def test_numbers_become_the_same_numbers_in_the_manner_of_each_language() -> None:
    pairs = [("He has 250 books.", "Er hat 250 Bücher.")] * 50 + [("He has 250 books.", "Er hat 251 Bücher.")]
    result = changed(pairs, numbers=1.0)
    assert result[-1] == pairs[-1]
    assert all(facts(english, "en") == facts(german, "de") for english, german in result[:-1])
    assert any("," in german for _, german in result)
    assert len(set(result)) > 30


@pytest.mark.parametrize(
    ("share", "wanted"),
    [
        ("lower_case", ("the big dog.", "der große hund.")),
        ("upper_case", ("THE BIG DOG.", "DER GROSSE HUND.")),
        ("unpunctuated", ("The big dog", "Der große Hund")),
        ("quoted", ("“The big dog.”", "„Der große Hund.“")),
    ],
)
def test_case_and_punctuation_change_on_both_sides(share: str, wanted: tuple[str, str]) -> None:
    assert changed([("The big dog.", "Der große Hund.")], ("en", "de"), 1, **{share: 1.0}) == [wanted]
    german_first = changed([("Der große Hund.", "The big dog.")], ("de", "en"), 1, **{share: 1.0})
    assert german_first == [wanted[::-1]]


def test_number_sentences_are_added_in_the_order_of_the_languages() -> None:
    added = changed([(b, a) for a, b in PAIRS], ("de", "en"), number_sentences=1.0)[len(PAIRS) :]
    assert added
    assert all(facts(german, "de") == facts(english, "en") for german, english in added)


def test_languages_without_rules_for_numbers_are_refused() -> None:
    assert Augmentation(numbers=0.1).problems(("en", "fr")) == ["numbers needs languages of en, de, not fr"]
    assert Augmentation(joined=0.1).problems(("en", "fr")) == []
