"""Do the numbers of a text survive its translation? They are compared by value, however either language writes them.

"12.50" and "12,50" are the same, and so are "1,234.5" and "1.234,5", or "10:30" and "10 Uhr 30"; "12.50" and "1250" are
not, though their digits are. What a separator means is not always to be told ("1.234" is written for 1234 and for a
little more than one), so a number has several readings, and two are the same that share one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

NUMBER = re.compile(r"\d+(?:[.,:/'’\u00a0\u2009\u202f-]\d+)*")
_DIGITS = re.compile(r"\d+")
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})+(?!\d)(?:[.,]\d+(?![.,]?\d))?")
"""A number whose groups are parted by spaces."""
_SPACE = re.compile(r"\s")
_GROUPED = re.compile(r"\d{1,3}([.,'’\u00a0\u2009\u202f])\d{3}(?:\1\d{3})*")
_GROUPED_DECIMAL = re.compile(r"(\d{1,3}([.,'’\u00a0\u2009\u202f])\d{3}(?:\2\d{3})*)(?!\2)[.,](\d+)")
_DECIMAL = re.compile(r"(\d+)[.,](\d+)")
_LONGEST = 40
"""Digits of a number that is read as one; of a longer one, the parts are compared."""

Reading = Decimal | tuple[int, ...]

_HALF_DAY = re.compile(r"\d\s*[ap]\.?\s?m\b|\d\s*Uhr\b|\d\s*o['’]clock\b", re.IGNORECASE)
# How a small number may be written out in English and German.
_NUMBER_WORDS = {
    value: re.compile(rf"\b(?:{pattern})", re.IGNORECASE)
    for value, pattern in {
        0: r"zero|no\b|null|kein",
        1: r"an?\b|one|once|first|ein(?:e[mnrs]?)?\b|eins|einmal|erst",
        2: r"two|second|twice|both|zwei|zwo|beid",
        3: r"three|third|drei|dritt",
        4: r"four|vier",
        5: r"five|fif|fünf",
        6: r"six|sech",
        7: r"seven|sieb",
        8: r"eight|acht",
        9: r"nine|ninth|neun",
        10: r"ten\b|tenth|zehn",
        11: r"eleven|elf",
        12: r"twel[fv]|dozen|zwölf|dutzend",
    }.items()
}


def readings(number: str) -> frozenset[Reading]:
    """What `number` may stand for: values, and the numbers that it is put together of, as a date or a time is."""
    parts = tuple(int(digits[:_LONGEST]) for digits in _DIGITS.findall(number))
    found: set[Reading] = {parts}
    if len(number) > _LONGEST:
        return frozenset(found)
    if len(parts) == 1:
        found.add(Decimal(parts[0]))
    if _GROUPED.fullmatch(number):
        found.add(Decimal(_plain(number)))
    for pattern in (_DECIMAL, _GROUPED_DECIMAL):
        if (match := pattern.fullmatch(number)) is not None:
            found.add(Decimal(f"{_plain(match[1])}.{match[match.re.groups]}"))
    return frozenset(found)


def missing_numbers(numbers: Sequence[str], text: str, translation: str) -> list[str]:
    """Those of `numbers`, which stand in `text`, that `translation` does not have.

    One may be written out where it is small, move by twelve hours next to a time of day, come in parts, or be a date
    whose month is named.
    """
    written = _readings_of(translation)
    parts = {int(digits[:_LONGEST]) for digits in _DIGITS.findall(translation)}
    half_day = _HALF_DAY.search(text) is not None
    grouped = {
        group
        for spaced in _SPACED.findall(text)
        if readings(_SPACE.sub("", spaced)) & written
        for group in NUMBER.findall(spaced)
    }

    def survived(number: str) -> bool:
        wanted = readings(number)
        if wanted & written or number in grouped:
            return True
        own = [int(digits[:_LONGEST]) for digits in _DIGITS.findall(number)]
        if len(own) == 3 and any(own[place] <= 12 and parts.issuperset(_others(own, place)) for place in (0, 1)):
            return True
        if len(own) > 1 and parts.issuperset(own):
            return True
        if len(own) == 1 and own[0] in _NUMBER_WORDS and _NUMBER_WORDS[own[0]].search(translation):
            return True
        return half_day and bool({own[0] + 12, own[0] - 12} & parts) and parts.issuperset(filter(None, own[1:]))

    return [number for number in numbers if not survived(number)]


def with_separators(lost: Iterable[str], translation: str) -> str:
    """`translation` with the separators of the `lost` numbers, where it has their digits in one number of its own."""
    for number in lost:
        digits = _plain(number)
        for match in NUMBER.finditer(translation):
            if _plain(match[0]) == digits and not readings(match[0]) & readings(number):
                translation = translation[: match.start()] + number + translation[match.end() :]
                break
    return translation


def _others(numbers: list[int], place: int) -> list[int]:
    return numbers[:place] + numbers[place + 1 :]


def _readings_of(text: str) -> set[Reading]:
    return {reading for number in _numbers(text) for reading in readings(number)}


def _numbers(text: str) -> Iterator[str]:
    yield from NUMBER.findall(text)
    for spaced in _SPACED.findall(text):
        yield _SPACE.sub("", spaced)


def _plain(number: str) -> str:
    return "".join(_DIGITS.findall(number))
