"""Where the words of a text are, whatever its language, without a model of any."""

from __future__ import annotations

import unicodedata

_JOINERS = frozenset("'’-‐‑")
"""They belong to the word when letters or digits stand on both sides."""
_NUMBER_JOINERS = frozenset(".,:")
"""They belong to a number when digits stand on both sides."""


def find_words(text: str) -> list[tuple[int, int]]:
    """The spans of the words, in order; any other visible character is a word by itself.

    A word is a run of letters, marks and digits. Scripts that put no space between words (Chinese, Japanese) have one
    character a word here.
    """
    words: list[tuple[int, int]] = []
    can_go_on = False
    for place, character in enumerate(text):
        if character.isspace():
            can_go_on = False
            continue
        if _is_part(text, place):
            if can_go_on:
                words[-1] = (words[-1][0], place + 1)
            else:
                words.append((place, place + 1))
            can_go_on = True
        else:
            words.append((place, place + 1))
            can_go_on = _is_mark(text, place + 1)
    return words


def _is_part(text: str, place: int) -> bool:
    character = text[place]
    if _is_plain(character):
        return True
    if not 0 < place < len(text) - 1:
        return False
    before, after = text[place - 1], text[place + 1]
    if character in _JOINERS:
        return _is_plain(before) and _is_plain(after)
    return character in _NUMBER_JOINERS and before.isdigit() and after.isdigit()


def _is_plain(character: str) -> bool:
    """A letter, a digit, or a mark upon one, of a script with spaces."""
    return unicodedata.category(character)[0] in "LMN" and unicodedata.east_asian_width(character) not in "WF"


def _is_mark(text: str, place: int) -> bool:
    return place < len(text) and unicodedata.category(text[place])[0] == "M"
