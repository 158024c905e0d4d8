"""Numbers, dates and times of English and German text: read as values, and written in the manner of the language.

The same value is spelled differently: 1,234.5 and 1.234,5; March 5, 2021 and 5. März 2021; 3:45 pm and 15:45 Uhr. What
is read here is compared between a text and its translation, to clean a corpus and to score a model.
"""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal

LANGUAGES = ("en", "de")
"""The languages whose numbers can be read."""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


MONTHS = {
    "en": _split("January,February,March,April,May,June,July,August,September,October,November,December"),
    "de": _split("Januar,Februar,März,April,Mai,Juni,Juli,August,September,Oktober,November,Dezember"),
}
"""The names of the months, January first; three letters abbreviate them."""

_DIGIT = re.compile("[0-9]")
_NUMBER = {
    "en": re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?![0-9])|[0-9]+(?:\.[0-9]+)*"),
    "de": re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]+)?(?![0-9])|[0-9]+(?:,[0-9]+)?(?:\.[0-9]+)*"),
}
_MONTH_NUMBERS = {
    code: {
        name: str(index % 12 + 1) for index, name in enumerate((*MONTHS[code], *(name[:3] for name in MONTHS[code])))
    }
    for code in LANGUAGES
}
_MONTH_NAMES = {code: "|".join(sorted(numbers, key=len, reverse=True)) for code, numbers in _MONTH_NUMBERS.items()}


def _month_pattern(code: str, before: tuple[str, ...]) -> re.Pattern[str]:
    # A month counts beside a number only: "May" is a verb and "Mar" a name elsewhere.
    places = [rf"(?<={text})\b(?:{_MONTH_NAMES[code]})\b" for text in before]
    return re.compile("|".join((*places, rf"\b(?:{_MONTH_NAMES[code]})(?=\.? [0-9])")))


_MONTH = {
    "en": _month_pattern("en", ("[0-9] ", "[0-9](?:st|nd|rd|th) ", "[0-9](?:st|nd|rd|th) of ")),
    "de": _month_pattern("de", ("[0-9] ", r"[0-9]\. ")),
}
_TIME = {
    "en": re.compile(r"\b([0-9]{1,2})(?:[:.]([0-9]{2}))? ?([ap])\.?m\b\.?|\b([0-9]{1,2}):([0-9]{2})\b", re.IGNORECASE),
    "de": re.compile(r"\b([0-9]{1,2})(?:[:.]([0-9]{2}))? Uhr(?: ([0-9]{2})\b)?|\b([0-9]{1,2}):([0-9]{2})\b"),
}


def facts(text: str, language: str) -> Counter[str]:
    """The numbers, months beside a number and times of day in `text`, each with how often it stands there.

    Numbers come as plain decimals ("1234.5"), months as "month 3", times as "15:45" on a clock of 24 hours. A language
    without rules raises ValueError.
    """
    if language not in LANGUAGES:
        raise ValueError(f"numbers of language {language!r} cannot be read, allowed: {', '.join(LANGUAGES)}")
    if not _DIGIT.search(text):
        return Counter()
    found: Counter[str] = Counter()

    def note_month(match: re.Match[str]) -> str:
        found[f"month {_MONTH_NUMBERS[language][match.group()]}"] += 1
        return " "

    def note_time(match: re.Match[str]) -> str:
        found[_time(match, language)] += 1
        return " "

    rest = _TIME[language].sub(note_time, _MONTH[language].sub(note_month, text))
    found.update(_value(number, language) for number in _NUMBER[language].findall(rest))
    return found


def _time(match: re.Match[str], language: str) -> str:
    first, minutes, third, hour, colon_minutes = match.groups()
    if hour is not None:
        return f"{int(hour)}:{colon_minutes}"
    number = int(first)
    if language == "de":
        return f"{number}:{minutes or third or '00'}"
    if number <= 12:
        number = number % 12 + (12 if third.lower() == "p" else 0)
    return f"{number}:{minutes or '00'}"


def _value(number: str, language: str) -> str:
    group, point = (",", ".") if language == "en" else (".", ",")
    plain = number
    if re.fullmatch(rf"[0-9]{{1,3}}(?:{re.escape(group)}[0-9]{{3}})+(?:{re.escape(point)}[0-9]+)?", number):
        plain = number.replace(group, "")
    if plain.count(point) == 1 and not plain.count(group):
        return plain.replace(point, ".")
    return plain if "." in plain or "," in plain else plain.lstrip("0") or "0"  # a version, 2.4.1, as it stands


def write_number(value: Decimal, language: str, *, grouped: bool = True) -> str:
    """`value` as the language writes it: 1,234.5 in English, 1.234,5 in German; `grouped` sets thousands apart."""
    text = f"{value:,f}" if grouped else f"{value:f}"
    return text if language == "en" else text.translate(str.maketrans(",.", ".,"))


def numbers_agree(first: str, second: str, languages: tuple[str, str], smallest: int = 13) -> bool:
    """Whether two texts have the same numbers, months and times; numbers below `smallest` may be words in one.

    True where a language has no rules.
    """
    if any(code not in LANGUAGES for code in languages):
        return True
    here, there = (_large(facts(text, code), smallest) for text, code in zip((first, second), languages, strict=True))
    return here == there


def _large(found: Counter[str], smallest: int) -> set[str]:
    return {fact for fact in found if ":" not in fact and " " not in fact and _size(fact) >= smallest}


def _size(fact: str) -> Decimal:
    return Decimal(fact) if fact.count(".") < 2 and "," not in fact else Decimal("Infinity")
