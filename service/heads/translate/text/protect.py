"""Spans that a translation must carry over unchanged: links, addresses, placeholders, tags, emoji; and numbers.

Two decisions are taken here. `cut_sentence` takes out, before the first round, the spans that the model does not need
to see: at the edge of a sentence, between clauses, or so long that a model would spell them byte by byte. All others
stay in place, since a sentence reads better whole; `missing_spans` then finds what the model dropped, and `cut_around`
is the way out: the text around every span is translated on its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from service.heads.translate.text.numbers import NUMBER, missing_numbers, with_separators

Span = tuple[int, int, str]
"""Start, end and kind."""

_EMOJI = (
    r"(?:[\U0001F000-\U0001FAFF\u2600-\u27BF\u2B00-\u2BFF\u231A-\u23FF]|[0-9#*]\uFE0F?\u20E3)"
    r"[\uFE0F\u200D\u20E3\U0001F3FB-\U0001F3FF\U000E0020-\U000E007F]*"
)
_DETACHED = {
    "url": r"(?:https?|ftps?|file)://[^\s<>\"]+|www\.[^\s<>\"]+\.[^\s<>\"]+|mailto:[^\s<>\"]+",
    "email": r"(?<![\w.+%-])[\w.+%-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "emoji": rf"{_EMOJI}(?:\s*{_EMOJI})*|(?<!\S)[:;]-?[()DP](?!\S)",
    "tag": r"</?[A-Za-z][^<>]*>|&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});",
}
_IN_PLACE = {
    "code": r"`[^`\n]+`",
    "placeholder": (
        r"\{\{[^{}\n]{0,80}\}\}|\$\{[^{}\n]{0,80}\}|\{[^{}\n]{0,80}\}"
        r"|(?<![\w%])%(?:\(\w{1,80}\)|\d{1,2}\$)?[-+\#0]?\d{0,3}(?:\.\d{1,3})?[sdifgxXcu@](?!\w)"
        r"|\$[A-Za-z_]\w*"
    ),
    "mention": r"(?<!\w)[@\#][A-Za-z_]\w*",
    "path": r"(?<![\w./-])~?(?:/[\w.-]{0,100}\w){2,}/?|(?<!\w)[A-Za-z]:\\[^\s<>\"|?*]*[\w\\]",
}
_SPAN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in (_DETACHED | _IN_PLACE).items()))
# One of these characters is in every span: most sentences have none, and skip the long pattern.
_HINT = re.compile(r"[:@<>&`{}$%#/\\\u231A-\u27BF\u2B00-\u2BFF\u20E3\U0001F000-\U0001FAFF]|www\.")
_URL_TAIL = ".,;:!?'’”“»…)]}*_"
_MAX_CHARS_IN_PLACE = 32

_SPACE = "".join(char for char in map(chr, range(0x3001)) if char.isspace())
_CLAUSE_MARKS = tuple(",:;.!?…–—")
_OPENING = "([{„“‘«»\"'¿¡"
_CLOSING = ")]},;:.!?…”“’«»–—\"'-"
_NEIGHBOURHOOD = 8
"""How many characters around a span are looked at for a clause mark."""


def has_letters(text: str) -> bool:
    """Whether a model could translate any of `text`."""
    return any(map(str.isalpha, text))


def find_spans(text: str) -> list[Span]:
    """Every protected span, in order and without overlap."""
    if _HINT.search(text) is None:
        return []
    spans: list[Span] = []
    for match in _SPAN.finditer(text):
        start, end, kind = match.start(), match.end(), match.lastgroup or ""
        spans.append((start, start + _address_length(match[0]) if kind == "url" else end, kind))
    return spans


def _address_length(url: str) -> int:
    # The sentence's own punctuation is not the address', but a bracket that the address opened is.
    length = len(url.rstrip(_URL_TAIL))
    opened = url.count("(", 0, length) - url.count(")", 0, length)
    while opened > 0 and url[length : length + 1] == ")":
        length += 1
        opened -= 1
    return length


def cut_sentence(text: str) -> list[tuple[str, bool]]:
    """(part, is for the model) of one sentence: the spans that need not be in it are taken out.

    The parts joined are `text`; a part for the model has a letter and no white space at its ends.
    """
    spans = find_spans(text)
    if not spans:
        return list(_parts(text, []))
    bare = _outside(text, spans)
    if not has_letters(bare):
        return [(text, False)]
    positions = range(len(bare))
    first = next(position for position in positions if bare[position].isalpha())
    last = next(position for position in reversed(positions) if bare[position].isalpha())

    def stands_apart(start: int, end: int, kind: str) -> bool:
        if end - start > _MAX_CHARS_IN_PLACE:
            return True
        if kind in _DETACHED and not first < start < last:
            return True
        before = text[max(0, start - _NEIGHBOURHOOD) : start].rstrip()
        after = text[end : end + _NEIGHBOURHOOD].lstrip()
        ends_clause = before.endswith(_CLAUSE_MARKS) or before.endswith(("(", "["))
        if kind == "emoji" and (ends_clause or after[:1].isupper()):
            return True
        return ends_clause and after.startswith((*_CLAUSE_MARKS, ")", "]"))

    return list(_parts(text, [span for span in spans if stands_apart(*span)]))


def cut_around(text: str) -> list[tuple[str, bool]]:
    """(part, is for the model) with every protected span and every number taken out; the last resort."""
    spans = find_spans(text)
    numbers = [(*match.span(), "number") for match in NUMBER.finditer(_outside(text, spans))]
    return list(_parts(text, sorted(spans + numbers)))


def without_spans(text: str) -> str:
    """`text` with blanks in place of its protected spans."""
    return _outside(text, find_spans(text))


def _outside(text: str, spans: Sequence[Span]) -> str:
    """`text` with blanks in place of `spans`, so that positions stay what they are."""
    if not spans:
        return text
    kept = []
    position = 0
    for start, end, _ in spans:
        kept += [text[position:start], " " * (end - start)]
        position = end
    return "".join([*kept, text[position:]])


def _parts(text: str, cuts: Sequence[Span]) -> Iterator[tuple[str, bool]]:
    position = 0
    for start, end, _ in cuts:
        yield from _trimmed(text[position:start], after_cut=position > 0, before_cut=True)
        yield text[start:end], False
        position = end
    yield from _trimmed(text[position:], after_cut=position > 0, before_cut=False)


def _trimmed(part: str, *, after_cut: bool, before_cut: bool) -> Iterator[tuple[str, bool]]:
    """What is left and right of a cut keeps the punctuation that belongs to the span outside of the model's text."""
    if not has_letters(part):
        if part:
            yield part, False
        return
    first = len(part) - len(part.lstrip(_SPACE + _CLOSING if after_cut else _SPACE))
    last = len(part.rstrip(_SPACE + _OPENING if before_cut else _SPACE))
    if first:
        yield part[:first], False
    yield part[first:last], True
    if last < len(part):
        yield part[last:], False


def missing_spans(text: str, translation: str) -> list[str]:
    """Protected spans and numbers of `text` that are not in `translation`.

    `service.heads.translate.text.numbers` says what a number may become.
    """
    spans = find_spans(text)
    contents = Counter(text[start:end] for start, end, _ in spans)
    lost = [content for content, count in contents.items() if translation.count(content) < count]
    numbers = NUMBER.findall(_outside(text, spans))
    return lost + missing_numbers(numbers, text, translation) if numbers else lost


def repair_numbers(text: str, translation: str) -> str:
    """`translation` with the separators that its numbers lost, as `text` writes them."""
    numbers = NUMBER.findall(without_spans(text))
    return with_separators(missing_numbers(numbers, text, translation), translation) if numbers else translation
