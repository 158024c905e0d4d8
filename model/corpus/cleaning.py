"""Cleaning a corpus of pairs: characters made uniform, and pairs left out that are no translations of each other."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from model.corpus.numbers import numbers_agree

Pair = tuple[str, str]

MAX_LENGTH_RATIO = 3.0
"""Characters of the longer side to those of the shorter one, each with ten added: short texts vary more."""

_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff\x00-\x08\x0b-\x1f\x7f]")
_SPACES = re.compile(r"\s+")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|&[a-zA-Z]+;|%[0-9]*\$?[sdif]\b|\{[a-zA-Z_0-9]*\}")
_WORDS = re.compile(r"[^\W\d_]+")


def _words(text: str) -> list[str]:
    return text.split()


_COMMON = {
    "en": frozenset(_words("the of and to is are that it for with you this not have be by from which he she they")),
    "de": frozenset(_words("der die das und zu ist sind den dem ein eine nicht sich mit für auf von wird ich sie es")),
}
"""Words that tell the language of a text; none is a word of the other language."""


def clean_text(text: str) -> str:
    """`text` in Unicode's NFC, without invisible characters, with single spaces."""
    return _SPACES.sub(" ", _INVISIBLE.sub("", unicodedata.normalize("NFC", text))).strip()


def problem(pair: Pair, languages: tuple[str, str]) -> str | None:
    """Why a pair is no translation that a model should learn from, or None."""
    first, second = pair
    if not first or not second:
        return "empty"
    if not (_WORDS.search(first) and _WORDS.search(second)):
        return "without letters"
    lengths = sorted((len(first) + 10, len(second) + 10))
    if lengths[1] > MAX_LENGTH_RATIO * lengths[0]:
        return "of unlike length"
    if Counter(_MARKUP.findall(first)) != Counter(_MARKUP.findall(second)):
        return "with unlike markup"
    if first == second and len(first.split()) > 3:
        return "not translated"
    if any(_is_of(text, other) for text, other in zip(pair, reversed(languages), strict=True)):
        return "in the wrong language"
    if not numbers_agree(first, second, languages):
        return "with unlike numbers"
    return None


def _is_of(text: str, language: str) -> bool:
    """Whether a text is in `language` rather than in another whose common words are known."""
    if language not in _COMMON:
        return False
    words = _WORDS.findall(text.lower())
    counts = {code: sum(word in common for word in words) for code, common in _COMMON.items()}
    return counts.pop(language) >= 2 + 2 * max(counts.values())


class Cleaner:
    """Cleans the files of one corpus after each other; a pair that an earlier file had is left out."""

    def __init__(self, languages: tuple[str, str]) -> None:
        self.languages = languages
        self._seen: set[int] = set()

    def clean(self, pairs: Iterable[Pair]) -> tuple[list[Pair], Counter[str]]:
        """The pairs that are kept, and counts of the others by reason."""
        kept: list[Pair] = []
        left_out: Counter[str] = Counter()
        for first, second in pairs:
            pair = clean_text(first), clean_text(second)
            reason = problem(pair, self.languages) or ("twice" if self._is_known(pair) else None)
            if reason:
                left_out[reason] += 1
            else:
                kept.append(pair)
        return kept, left_out

    def _is_known(self, pair: Pair) -> bool:
        # Case and punctuation make no other pair. Hashes, because the texts of a corpus take ten times the memory.
        key = hash(tuple(" ".join(re.findall(r"\w+", text.casefold())) for text in pair))
        is_known = key in self._seen
        self._seen.add(key)
        return is_known
