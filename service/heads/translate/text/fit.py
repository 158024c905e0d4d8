"""Sentences that are too long for the model, cut where it hurts least."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from service.heads.translate.text.protect import Span, find_spans, has_letters

# After the end of a clause, then after a comma, then between words. White space is needed after a mark, so that numbers
# and addresses stay whole.
_BOUNDARIES = (re.compile(r"(?<=[.;:!?…)–—])\s+(?=\S)"), re.compile(r"(?<=,)\s+(?=\S)"), re.compile(r"\s+(?=\S)"))
_SAFETY = 0.9
"""A part is planned a little shorter than the average number of characters per token allows, to save a second cut."""
_LONGEST_SHARE = 0.75
"""A cut takes at least a quarter off, so the number of rounds is the logarithm of the length, whatever the text."""


def fit_lengths(
    texts: Sequence[str], max_tokens: int, count_tokens: Callable[[Sequence[str]], list[int]]
) -> Iterator[list[tuple[str, bool]]]:
    """For each text its parts of at most `max_tokens` tokens each, as (part, is for the model); they join to the text.

    All texts are counted in one call, then only the parts of those that were too long. A single character is never cut.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens is {max_tokens}; it must be at least 1")
    cuts: list[list[str]] = [[text] for text in texts]
    waiting = [(index, 0) for index in range(len(texts))]
    while waiting:
        counts = count_tokens([cuts[index][part] for index, part in waiting])
        too_long = {
            place: count
            for place, count in zip(waiting, counts, strict=True)
            if count > max_tokens and len(cuts[place[0]][place[1]]) > 1
        }
        waiting = []
        for index in dict.fromkeys(index for index, _ in too_long):
            parts: list[str] = []
            for place, part in enumerate(cuts[index]):
                count = too_long.get((index, place))
                new = [part] if count is None else list(_cut(part, max_tokens / count))
                if count is not None:
                    waiting += [(index, len(parts) + offset) for offset in range(len(new))]
                parts += new
            cuts[index] = parts
    return (list(_trim(parts)) for parts in cuts)


def _cut(text: str, share: float) -> Iterator[str]:
    """Parts of at most about `share` of the text's length, each cut at the last good boundary of its second half."""
    spans = find_spans(text)
    longest = max(1, int(len(text) * min(share * _SAFETY, _LONGEST_SHARE)))
    start = 0
    while len(text) - start > longest:
        end = _boundary(text, start + (longest + 1) // 2, start + longest, spans)
        yield text[start:end]
        start = end
    yield text[start:]


def _boundary(text: str, first: int, last: int, spans: Sequence[Span]) -> int:
    """The best place to cut in first..last, both included."""
    for boundary in _BOUNDARIES:
        places = [match.end() for match in boundary.finditer(text, first - 1, last + 1)]
        for place in reversed(places):
            if first <= place <= last and not _is_inside(place, spans):
                return place
    for place in range(last, first, -1):
        if not _is_inside(place, spans) and not _joins(text[place - 1], text[place]):
            return place
    return last


def _is_inside(place: int, spans: Sequence[Span]) -> bool:
    index = bisect_right(spans, place, key=lambda span: span[0]) - 1
    return index >= 0 and spans[index][0] < place < spans[index][1]


def _joins(left: str, right: str) -> bool:
    """Whether two characters are part of one that a reader sees: an accent, a joined emoji, a digit's neighbour."""
    return bool(
        unicodedata.combining(right)
        or right in "\u200d\ufe0f"
        or left == "\u200d"
        or (left.isdigit() and right.isdigit())
    )


def _trim(parts: Sequence[str]) -> Iterator[tuple[str, bool]]:
    for part in parts:
        if not has_letters(part):
            yield part, False
            continue
        first, last = len(part) - len(part.lstrip()), len(part.rstrip())
        yield part[:first], False
        yield part[first:last], True
        yield part[last:], False
