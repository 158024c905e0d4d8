"""English and German sentences full of numbers, dates, times and units, made from templates with random values.

Models that have read everyday text only translate "3.5 km" or "March 5" wrongly. Some templates are to train, others to
test (`test_sentences`): none is in both, so the score tells what was learned of numbers and not of sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np

from model.corpus.names import CITIES, FEMALE, MALE, made_up_surname
from model.corpus.number_templates import TEST, TRAINING
from model.corpus.numbers import MONTHS, write_number

Pair = tuple[str, str]
"""English, German."""
Generator = np.random.Generator

_SLOT = re.compile(r"\{([a-z_]+)[0-9]*\}")


def _both(value: Decimal, *, grouped: bool = True) -> Pair:
    return write_number(value, "en", grouped=grouped), write_number(value, "de", grouped=grouped)


def _whole(low: int, high: int, *, grouped: bool = True) -> Callable[[Generator], Pair]:
    """Whole numbers from `low` to below `high`, small ones as likely as large ones."""

    def draw(generator: Generator) -> Pair:
        value = int(np.exp(generator.uniform(np.log(low), np.log(high))))
        return _both(Decimal(value), grouped=grouped or value >= 10_000)

    return draw


def _decimal(generator: Generator) -> Pair:
    digits = int(generator.integers(1, 3))
    value = int(np.exp(generator.uniform(np.log(11), np.log(20_000))))
    return _both(Decimal(value + (value % 10 == 0)).scaleb(-digits), grouped=False)


def _number(generator: Generator) -> Pair:
    return _decimal(generator) if generator.random() < 0.5 else _whole(2, 900_000)(generator)


def _money(generator: Generator) -> Pair:
    cents = int(np.exp(generator.uniform(np.log(110), np.log(90_000_000))))
    amount = _both(
        Decimal(cents).scaleb(-2) if cents < 1_000_000 and generator.random() < 0.5 else Decimal(cents // 100 + 1)
    )
    sign, words = (("$", ("dollars", "Dollar")), ("€", ("euros", "Euro")), ("£", ("pounds", "Pfund")))[
        generator.integers(3)
    ]
    if generator.random() < 0.4:
        return f"{amount[0]} {words[0]}", f"{amount[1]} {words[1]}"
    return f"{sign}{amount[0]}", f"{amount[1]} {sign}"


def _quantity(*units: Pair) -> Callable[[Generator], Pair]:
    def draw(generator: Generator) -> Pair:
        first, second = _number(generator)
        there, here = units[generator.integers(len(units))]
        return f"{first} {there}", f"{second} {here}"

    return draw


def _day_month(generator: Generator) -> Pair:
    day, month = int(generator.integers(1, 29)), int(generator.integers(12))
    english, german = MONTHS["en"][month], MONTHS["de"][month]
    style = generator.random()
    if style < 0.6:
        return f"{english} {day}", f"{day}. {german}"
    if style < 0.8:
        return f"{day} {english}", f"{day}. {german}"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th") if day // 10 != 1 else "th"
    return f"{english} {day}{ending}", f"{day}. {german}"


def _date(generator: Generator) -> Pair:
    (first, second), year = _day_month(generator), _year(generator)[0]
    comma = "," if first[0].isalpha() else ""
    return f"{first}{comma} {year}", f"{second} {year}"


def _month_year(generator: Generator) -> Pair:
    month, year = int(generator.integers(12)), _year(generator)[0]
    return f"{MONTHS['en'][month]} {year}", f"{MONTHS['de'][month]} {year}"


def _year(generator: Generator) -> Pair:
    year = str(generator.integers(1900, 2035) if generator.random() < 0.6 else generator.integers(1000, 1900))
    return year, year


def _time(generator: Generator) -> Pair:
    hour, minute = int(generator.integers(24)), int(generator.choice([0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55]))
    german = f"{hour}:{minute:02} Uhr" if minute or generator.random() < 0.3 else f"{hour} Uhr"
    if generator.random() < 0.3:
        return f"{hour}:{minute:02}", f"{hour}:{minute:02} Uhr"
    half = str(generator.choice(["am", "a.m."] if hour < 12 else ["pm", "p.m."]))
    return f"{(hour - 1) % 12 + 1}{f':{minute:02}' if minute else ''} {half}", german


def _ordinal(generator: Generator) -> Pair:
    value = int(generator.integers(2, 100))
    ending = {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th") if value // 10 != 1 else "th"
    return f"{value}{ending}", f"{value}."


def _scaled(generator: Generator) -> Pair:
    first, second = _both(Decimal(int(generator.integers(11, 990))).scaleb(-1))
    return (
        (f"{first} million", f"{second} Millionen")
        if generator.random() < 0.6
        else (f"{first} billion", f"{second} Milliarden")
    )


def _percent(generator: Generator) -> Pair:
    first, second = _both(Decimal(int(generator.integers(2, 1000))).scaleb(-int(generator.integers(0, 2))))
    return (f"{first}%", f"{second} %") if generator.random() < 0.6 else (f"{first} percent", f"{second} Prozent")


def _temperature(generator: Generator) -> Pair:
    first, second = _both(Decimal(int(generator.integers(-300, 450))).scaleb(-int(generator.integers(0, 2))))
    unit = "°C" if generator.random() < 0.5 else ""
    return (f"{first} {unit}", f"{second} {unit}") if unit else (f"{first} degrees", f"{second} Grad")


def _copied(make: Callable[[Generator], str]) -> Callable[[Generator], Pair]:
    def draw(generator: Generator) -> Pair:
        text = make(generator)
        return text, text

    return draw


def _version(generator: Generator) -> str:
    return ".".join(str(part) for part in generator.integers(0, 20, size=generator.integers(2, 4)))


def _code(generator: Generator) -> str:
    letters = "".join(chr(65 + letter) for letter in generator.integers(26, size=generator.integers(1, 4)))
    return f"{letters}{generator.choice(['', '-', ' '])}{generator.integers(10, 99_999)}"


def _phone(generator: Generator) -> str:
    return f"0{generator.integers(20, 999)} {generator.integers(10_000, 9_999_999)}"


def _person(generator: Generator) -> str:
    return f"{generator.choice(MALE if generator.random() < 0.5 else FEMALE)} {made_up_surname(generator)}"


def _mail(generator: Generator) -> str:
    ending = generator.choice(["com", "org", "de", "net"])
    return f"{generator.choice(FEMALE)}.{made_up_surname(generator)}@{made_up_surname(generator)}.{ending}".lower()


_SLOTS: dict[str, Callable[[Generator], Pair]] = {
    "int": _whole(13, 2_000_000),
    "few": _whole(2, 100),
    "plain": _whole(13, 10_000, grouped=False),
    "number": _number,
    "decimal": _decimal,
    "money": _money,
    "length": _quantity(
        ("km", "km"), ("m", "m"), ("cm", "cm"), ("kilometers", "Kilometer"), ("meters", "Meter"), ("miles", "Meilen")
    ),
    "weight": _quantity(("kg", "kg"), ("g", "g"), ("tons", "Tonnen"), ("kilograms", "Kilogramm"), ("pounds", "Pfund")),
    "speed": _quantity(("km/h", "km/h"), ("mph", "mph"), ("kilometers per hour", "Kilometer pro Stunde")),
    "area": _quantity(("m²", "m²"), ("square meters", "Quadratmeter"), ("hectares", "Hektar"), ("km²", "km²")),
    "memory": _quantity(("GB", "GB"), ("MB", "MB"), ("terabytes", "Terabyte")),
    "volume": _quantity(("liters", "Liter"), ("ml", "ml"), ("l", "l")),
    "percent": _percent,
    "year": _year,
    "date": _date,
    "day_month": _day_month,
    "month_year": _month_year,
    "time": _time,
    "ordinal": _ordinal,
    "scaled": _scaled,
    "temperature": _temperature,
    "version": _copied(_version),
    "code": _copied(_code),
    "phone": _copied(_phone),
    "person": _copied(_person),
    "mail": _copied(_mail),
    "city": _copied(lambda generator: str(generator.choice(CITIES))),
}


def fill(template: Pair, generator: Generator) -> Pair:
    """Both sides of a template, each slot with one value: "{date}", or "{year1}" and "{year2}" for two of a kind."""
    values: dict[str, Pair] = {}
    for match in _SLOT.finditer(template[0]):
        values.setdefault(match.group()[1:-1], _SLOTS[match.group(1)](generator))
    english, german = (template[side].format(**{name: pair[side] for name, pair in values.items()}) for side in (0, 1))
    return english.replace("m..", "m."), german  # "a.m." ends a sentence by itself


def sentences(count: int, generator: Generator, templates: Sequence[Pair] | None = None) -> list[Pair]:
    """`count` sentences from the training templates, or from `templates`."""
    chosen = TRAINING if templates is None else templates
    return [fill(chosen[index], generator) for index in generator.integers(len(chosen), size=count)]


def test_sentences(count: int, seed: int) -> list[Pair]:
    """`count` sentences from templates that training never sees; the same for the same seed."""
    return sentences(count, np.random.default_rng(seed), TEST)
