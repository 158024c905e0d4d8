"""Plain text to a `Plan`: lines, then sentences, then what a model with a limit can take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from service.heads.translate.text.fit import fit_lengths
from service.heads.translate.text.plan import Plan, Segment
from service.heads.translate.text.protect import cut_sentence, has_letters
from service.heads.translate.text.sentences import split_sentences

CountTokens = Callable[[Sequence[str]], list[int]]
"""The number of tokens of each text, without special tokens."""

Splitting = Literal["lines", "sentences", "off"]
"""Where a text is cut: at line breaks and between sentences, between sentences alone, or nowhere.

Where lines do not cut, a line break between two words is a space to the model. A text that is longer than a model
allows is cut all the same.
"""

# Line breaks, and white space that is layout (tabs, columns): a translation never crosses them. Nor does it cross half
# of a surrogate pair, which JSON can hold and no tokenizer can read.
_LAYOUT = re.compile(r"(\s*[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029\ud800-\udfff]\s*|\s{3,})")
_BULLET = re.compile(r"(?:[-*+•‣◦▪·–—>|#]+\s+)+")


def split_text(text: str, language: str, max_tokens: int, count_tokens: CountTokens) -> Plan:
    """Cut `text` into sentences of `language` with at most `max_tokens` tokens each.

    White space, bullets and text without any letter are literals of the plan, so with the segments left as they are,
    `join` gives `text` again to the last character. A single character is never cut, however many tokens it has.
    ValueError when `max_tokens` is below 1.
    """
    parts = list(cut_text(text, language))
    fitted = fit_lengths([part for part, is_text in parts if is_text], max_tokens, count_tokens)
    return Plan(_pieces(parts, fitted))


def cut_text(text: str, language: str, splitting: Splitting = "lines") -> Iterator[tuple[str, bool]]:
    """(part, is for the model): the sentences of `text` and what is between them; they join to `text`.

    Layout cuts always: where lines shall not, the caller has folded them.
    """
    for index, line in enumerate(_LAYOUT.split(text)):
        if index % 2 or not has_letters(line):
            yield line, False
            continue
        bullet = _BULLET.match(line)
        start = bullet.end() if bullet else 0
        yield line[:start], False
        rest = line[start:]
        for sentence in [rest] if splitting == "off" else split_sentences(rest, language):
            yield from cut_sentence(sentence)


def _pieces(parts: Sequence[tuple[str, bool]], fitted: Iterator[list[tuple[str, bool]]]) -> list[str | Segment]:
    pieces: list[str | Segment] = []
    for part, is_text in parts:
        for piece, for_model in next(fitted) if is_text else [(part, False)]:
            pieces.append(Segment(piece, piece) if for_model else piece)
    return pieces
