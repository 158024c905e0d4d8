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


def test_an_empty_translation_leaves_the_source() -> None:
    assert plan_of("One. Two.").join(["", "Zwei."]) == "One. Zwei."


def test_literals_are_never_escaped_and_translations_are() -> None:
    plan = Plan(["<p>", Segment("a", "a"), "</p>"], escape=lambda text: text.replace("<", "&lt;"))
    assert plan.join(["b < c"]) == "<p>b &lt; c</p>"
