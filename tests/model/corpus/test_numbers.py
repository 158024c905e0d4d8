from collections import Counter
from decimal import Decimal

import numpy as np
import pytest

from model.corpus import number_sentences as generated
from model.corpus.number_templates import TEST, TRAINING
from model.corpus.numbers import facts, numbers_agree, write_number


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("en", "It costs $1,234.50 and 3.5 more.", ["1234.50", "3.5"]),
        ("de", "Es kostet 1.234,50 $ und 3,5 mehr.", ["1234.50", "3.5"]),
        ("en", "On March 5, 2021, at 3:45 pm.", ["month 3", "5", "2021", "15:45"]),
        ("de", "Am 5. März 2021 um 15:45 Uhr.", ["month 3", "5", "2021", "15:45"]),
        ("en", "the 21st of May, or 9 a.m., or 12 am", ["21", "month 5", "9:00", "0:00"]),
        ("de", "der 21. Mai, um 9 Uhr oder 0 Uhr", ["21", "month 5", "9:00", "0:00"]),
        ("en", "You may march, May, in version 2.4.1.", ["2.4.1"]),
        ("de", "Seite 007, Zeile 12.", ["7", "12"]),
        ("en", "no numbers", []),
    ],
)
def test_numbers_are_read_in_the_manner_of_the_language(language: str, text: str, found: list[str]) -> None:
    assert facts(text, language) == Counter(found)


def test_a_language_without_rules_is_refused() -> None:
    with pytest.raises(ValueError, match="'fr' cannot be read, allowed: en, de"):
        facts("1", "fr")


def test_numbers_are_written_in_the_manner_of_the_language() -> None:
    assert write_number(Decimal("1234567.5"), "en") == "1,234,567.5"
    assert write_number(Decimal("1234567.5"), "de") == "1.234.567,5"
    assert write_number(Decimal("1234.5"), "de", grouped=False) == "1234,5"


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        ("It has 1,500 rooms.", "Es hat 1.500 Zimmer.", True),
        ("It has 1,500 rooms.", "Es hat 1,500 Zimmer.", False),
        ("I have 2 dogs.", "Ich habe zwei Hunde.", True),
        ("In 1984.", "Damals.", False),
        ("At 3 pm.", "Um 15 Uhr.", True),
    ],
)
def test_numbers_of_a_pair_agree_or_do_not(first: str, second: str, agree: bool) -> None:
    assert numbers_agree(first, second, ("en", "de")) is agree


def test_generated_sentences_have_the_same_numbers_on_both_sides() -> None:
    pairs = [*generated.test_sentences(1500, seed=4), *generated.sentences(3000, np.random.default_rng(5))]
    different = [pair for pair in pairs if facts(pair[0], "en") != facts(pair[1], "de")]
    assert different == []
    assert sum(bool(facts(pair[0], "en")) for pair in pairs) > 0.9 * len(pairs)


def test_generated_sentences_follow_from_the_seed() -> None:
    assert generated.test_sentences(20, 1) == generated.test_sentences(20, 1) != generated.test_sentences(20, 2)


def test_no_sentence_is_trained_on_and_tested() -> None:
    for side in (0, 1):
        assert not {pair[side] for pair in TRAINING} & {pair[side] for pair in TEST}
