import pytest

from model.corpus.cleaning import Cleaner, clean_text, problem


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("The house is big.", "Das Haus ist groß."), None),
        (("Berlin", "Berlin"), None),
        (("", "Das Haus"), "empty"),
        (("- - -", "12 - 3"), "without letters"),
        (
            ("Yes, I do.", "Ja, und ich möchte noch sagen, dass ich heute schon drei Stunden warte."),
            "of unlike length",
        ),
        (("Press <b>OK</b> now.", "Drücken Sie jetzt OK."), "with unlike markup"),
        (("This was never translated at all", "This was never translated at all"), "not translated"),
        (("The text of the file", "Der Text of the file that is not for you"), "in the wrong language"),
        (("Das ist nicht der Text", "Das ist nicht der Text hier"), "in the wrong language"),
        (("In 1984 it rained.", "1985 regnete es."), "with unlike numbers"),
    ],
)
def test_a_pair_that_is_no_translation_is_told_from_one(pair: tuple[str, str], reason: str | None) -> None:
    assert problem(pair, ("en", "de")) == reason


def test_characters_are_made_uniform() -> None:
    assert clean_text(" u\u0308ber\u00a0 das\u200b Wort\u00ad teil\t") == "über das Wort teil"


def test_a_pair_is_kept_once_in_all_files() -> None:
    cleaner = Cleaner(("en", "de"))
    first, _ = cleaner.clean([("Hello, Tom!", "Hallo Tom!"), ("Hello.", "Hallo.")])
    second, left_out = cleaner.clean([("hello Tom", "Hallo, Tom"), ("Hello, Tom!", "Servus Tom!")])
    assert [*first, *second] == [("Hello, Tom!", "Hallo Tom!"), ("Hello.", "Hallo."), ("Hello, Tom!", "Servus Tom!")]
    assert left_out == {"twice": 1}


def test_languages_without_rules_are_not_judged_by_them() -> None:
    assert problem(("Il y a 1984 maisons", "Hay 20 casas allí"), ("fr", "es")) is None
