from __future__ import annotations

import pytest

from service.heads.translate.text.plan import Plan, Segment
from service.heads.translate.text.segment import split_text


def plan_of(text: str) -> Plan:
    return split_text(text, "en", 1_000, lambda texts: [1] * len(texts))


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ("I have 3 dogs.", "Ich habe 3 Hunde.", []),
        ("I have 3 dogs.", "Ich habe drei Hunde.", []),
        ("I have 3 dogs.", "Ich habe Hunde.", ["3"]),
        ("I have 13 dogs.", "Ich habe 3 Hunde.", ["13"]),
        ("It cost 1,234.50 dollars.", "Es kostete 1.234,50 Dollar.", []),
        ("About 10,000 people came.", "Etwa 10 000 Menschen kamen.", []),
        ("About 10,000 people came.", "Etwa 1.000 Menschen kamen.", ["10,000"]),
        ("He came at 5 p.m. today.", "Er kam heute um 17 Uhr.", []),
        ("He came at 9:30 pm today.", "Er kam heute um 21.30 Uhr.", []),
        ("From 2019-20 it rose.", "Von 2019 bis 20 stieg es.", []),
        ("On 03/04 we met.", "Am 3.4. trafen wir uns.", []),
        ("It costs 12.50 euros.", "Es kostet 1250 Euro.", ["12.50"]),
        ("It costs 12.50 euros.", "Es kostet 12,50 Euro.", []),
        ("It took 3.5 years.", "Es dauerte 35 Jahre.", ["3.5"]),
        ("Born on 3.5.1984 in Rome.", "Geboren am 35.1984 in Rom.", ["3.5.1984"]),
        ("Born on 3.5.1984 in Rome.", "Geboren am 3. Mai 1984 in Rom.", []),
        ("It is 1.234 here.", "Es sind hier 1234.", []),  # which of both it is, nobody can tell
        ("About 12 000 people came.", "Etwa 12.000 Menschen kamen.", []),
        ("About 1 234 567 people came.", "Etwa 1234567 Menschen kamen.", []),
        ("About 12 000 people came.", "Etwa 12 Menschen kamen.", ["000"]),
        ("Version 1.2.3 is out.", "Version 12.3 ist da.", ["1.2.3"]),
        ("Hello {name}, come here.", "Hallo {name}, komm her.", []),
        ("Hello {name}, come here.", "Hallo {Name}, komm her.", ["{name}"]),
        ("Copy %s to %s now.", "Kopiere %s jetzt.", ["%s"]),
        ("Set $HOME and `x` here.", "Setze $HOME und x hier.", ["`x`"]),
        ("I ❤️ you.", "Ich liebe dich.", ["❤️"]),
        ("It is 100% sure.", "Es ist 100 % sicher.", []),
    ],
)
def test_missing_names_what_a_translation_lost(source: str, translation: str, missing: list[str]) -> None:
    assert plan_of(source).missing(0, translation) == missing


def test_a_good_first_round_needs_no_second() -> None:
    plan = plan_of("Hello {name}. You are 30.").retry(["Hallo {name}.", "Du bist 30."])
    assert plan.segments == []
    assert plan.join([]) == "Hallo {name}. Du bist 30."


def test_a_sentence_that_lost_a_span_is_cut_around_it() -> None:
    plan = plan_of("Fine. Hello {name}, you have %d new messages.").retry(["Gut.", "Hallo, du hast neue Nachrichten."])
    assert plan.segments == ["Hello", "you have", "new messages."]
    assert plan.join(["Hallo", "du hast", "neue Nachrichten."]) == "Gut. Hallo {name}, du hast %d neue Nachrichten."


@pytest.mark.parametrize(
    ("source", "translation", "repaired"),
    [
        ("It costs 12.50 euros.", "Es kostet 1250 Euro.", "Es kostet 12.50 Euro."),
        ("Born on 3.5.1984, he is 12.5.", "Geboren am 35.1984, ist er 125.", "Geboren am 3.5.1984, ist er 12.5."),
    ],
)
def test_separators_that_a_number_lost_are_put_back(source: str, translation: str, repaired: str) -> None:
    plan = plan_of(source).retry([translation])
    assert plan.segments == []
    assert plan.join([]) == repaired


def test_a_number_that_is_lost_is_translated_around() -> None:
    plan = plan_of("It costs 12.50 euros.").retry(["Es kostet viel."])
    assert plan.segments == ["It costs", "euros."]


def test_an_empty_translation_leaves_the_source() -> None:
    assert plan_of("One. Two.").join(["", "Zwei."]) == "One. Zwei."


def test_literals_are_never_escaped_and_translations_are() -> None:
    plan = Plan(["<p>", Segment("a", "a"), "</p>"], escape=lambda text: text.replace("<", "&lt;"))
    assert plan.join(["b < c"]) == "<p>b &lt; c</p>"
