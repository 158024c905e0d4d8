"""More of a corpus than it has: pairs changed on both sides alike, so that a model learns what texts of its kind lack.

Everything is drawn from the generator that is given, so the same one gives the same pairs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from model.corpus.names import FEMALE, MALE, made_up_surname
from model.corpus.number_sentences import sentences
from model.corpus.numbers import LANGUAGES, write_number

Pair = tuple[str, str]
_Share = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Augmentation:
    """Shares of the drawn pairs that are changed, or that are added (`number_sentences`); all 0 is as the files are."""

    joined: _Share = 0.0
    """Pairs that the next one is appended to: longer texts than the corpus has."""
    names: _Share = 0.0
    """Of the pairs with one of `TATOEBA_NAMES` on both sides: another name, some made up."""
    numbers: _Share = 0.0
    """Of the pairs with equal numbers on both sides: others of the same form, in the manner of each language."""
    number_sentences: _Share = 0.0
    """Sentences made from templates, added: numbers, dates, times, money, units; English and German only."""
    lower_case: _Share = 0.0
    upper_case: _Share = 0.0
    unpunctuated: _Share = 0.0
    """Pairs without the full stop that ends both sides."""
    quoted: _Share = 0.0
    """Pairs within quotation marks, in the manner of each language."""

    def problems(self, languages: Sequence[str]) -> list[str]:
        """What the languages do not allow."""
        wanted = [name for name in ("numbers", "number_sentences", "quoted") if getattr(self, name)]
        unknown = [code for code in languages if code not in LANGUAGES]
        if not unknown or not wanted:
            return []
        return [f"{', '.join(wanted)} needs languages of {', '.join(LANGUAGES)}, not {', '.join(unknown)}"]

    @property
    def is_off(self) -> bool:
        """Whether nothing is changed."""
        return not any(dataclasses.astuple(self))


TATOEBA_NAMES = {"Tom": MALE, "John": MALE, "Mary": FEMALE, "Maria": FEMALE, "Marie": FEMALE, "Anna": FEMALE}
"""The few names of that corpus, which a model would otherwise make of every name, and what to put in their place."""

_NAME = re.compile(rf"\b({'|'.join(TATOEBA_NAMES)})(?=s?\b)")
_SAME_NUMBER = re.compile(r"(?<![\w.,:/-])[0-9]{2,}(?![\w:/-]|[.,][0-9])")
_QUOTES = {"en": "“”", "de": "„“"}


def augment(
    pairs: Sequence[Pair], options: Augmentation, languages: Sequence[str], generator: np.random.Generator
) -> list[Pair]:
    """`pairs`, first and second language, with the shares of `options` changed or added."""
    first, second = languages
    result = list(pairs)
    changes: tuple[tuple[float, Callable[[Pair], Pair | None]], ...] = (
        (options.names, lambda pair: _rename(pair, generator)),
        (options.numbers, lambda pair: _renumber(pair, (first, second), generator)),
        (options.unpunctuated, _unpunctuate),
        (options.quoted, lambda pair: _quote(pair, (first, second))),
        (options.lower_case, lambda pair: (pair[0].lower(), pair[1].lower())),
        (options.upper_case, lambda pair: (_capitals(pair[0]), _capitals(pair[1]))),
    )
    for share, change in changes:
        for index in np.flatnonzero(generator.random(len(result)) < share):
            result[index] = change(result[index]) or result[index]
    result = _join(result, options.joined, generator)
    if count := generator.binomial(len(pairs), options.number_sentences):
        made = sentences(count, generator)
        result += made if first == "en" else [(german, english) for english, german in made]
    return result


def _rename(pair: Pair, generator: np.random.Generator) -> Pair | None:
    names = set(_NAME.findall(pair[0]))
    if not names or names != set(_NAME.findall(pair[1])):
        return None
    surnames = {name: f" {made_up_surname(generator)}" if generator.random() < 0.25 else "" for name in sorted(names)}
    others = {name: f"{generator.choice(TATOEBA_NAMES[name])}{surnames[name]}" for name in sorted(names)}
    first, second = (_NAME.sub(lambda match: others[match.group()], text) for text in pair)
    return first, second


def _renumber(pair: Pair, languages: tuple[str, str], generator: np.random.Generator) -> Pair | None:
    """Numbers of two digits and more that stand once on each side, without a point or a comma, become others."""
    here, there = (_SAME_NUMBER.findall(text) for text in pair)
    numbers = [number for number in here if here.count(number) == there.count(number) == 1 and number[0] != "0"]
    if not numbers:
        return None
    other = {number: _like(number, languages, generator) for number in numbers}

    def replace(side: int) -> str:
        return _SAME_NUMBER.sub(lambda match: other.get(match.group(), (match.group(),) * 2)[side], pair[side])

    return replace(0), replace(1)


def _like(number: str, languages: tuple[str, str], generator: np.random.Generator) -> Pair:
    low = 10 ** (len(number) - 1)
    value = int(generator.integers(low, 10 * low))
    if 1000 <= int(number) <= 2100:  # a year, most likely
        value = int(generator.integers(1000, 2100))
    elif int(number) > 31 and generator.random() < 0.3:  # not a day
        places = int(generator.integers(1, 3))
        first, second = (write_number(Decimal(value).scaleb(-places), code, grouped=False) for code in languages)
        return first, second
    return str(value), str(value)


def _unpunctuate(pair: Pair) -> Pair | None:
    if not all(text.endswith(".") and not text.endswith("..") for text in pair):
        return None
    return pair[0][:-1], pair[1][:-1]


def _quote(pair: Pair, languages: tuple[str, str]) -> Pair | None:
    if any(set(text) & set("\"'“”„‘’«»") for text in pair):
        return None
    first, second = (f"{_QUOTES[code][0]}{text}{_QUOTES[code][1]}" for text, code in zip(pair, languages, strict=True))
    return first, second


def _capitals(text: str) -> str:
    return text.replace("ß", "ẞ").upper().replace("ẞ", "SS")


def _join(pairs: list[Pair], share: float, generator: np.random.Generator) -> list[Pair]:
    """A share of the pairs with the one behind it appended, where both are sentences."""
    chosen = generator.random(len(pairs)) < share
    result: list[Pair] = []
    is_open = False
    for pair, is_chosen in zip(pairs, chosen, strict=True):
        if is_open and all(text[0].isupper() for text in pair):
            result[-1] = (f"{result[-1][0]} {pair[0]}", f"{result[-1][1]} {pair[1]}")
        else:
            result.append(pair)
        is_open = bool(is_chosen) and all(text[-1] in ".!?" for text in pair)
    return result
