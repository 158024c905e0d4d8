"""A text cut into what the model translates and what is kept as it is.

A small sentence-level model has seen few placeholders and almost no URLs, so it may drop one, or a number. A `Plan`
therefore takes two rounds: after the first, `retry` checks every translation and cuts the sentences that lost something
around what they lost; only these pieces go to the model again.

    plan = split_text(text, "en", max_tokens, count_tokens)
    plan = plan.retry(translate(plan.segments))  # a plan without segments when nothing was lost, as is usual
    result = plan.join(translate(plan.segments))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from service.heads.translate.text.protect import cut_around, missing_spans, repair_numbers

_Piece = TypeVar("_Piece", bound="str | Segment")


@dataclass(frozen=True, slots=True)
class Segment:
    """One sentence, or part of one, for the model.

    `text` has no white space at its ends. `source` is its spelling in the document, which differs from `text` where the
    document has a markup of its own (HTML character references, folded white space).
    """

    text: str
    source: str


def _as_it_is(text: str) -> str:
    return text


class Plan:
    """Literal strings and segments in the order of the document.

    `escape` turns a translation into the document's spelling; literals are in that spelling already.
    """

    def __init__(self, pieces: Sequence[str | Segment], escape: Callable[[str], str] = _as_it_is) -> None:
        self.pieces = tuple(pieces)
        self._escape = escape
        self._segments = [piece for piece in self.pieces if isinstance(piece, Segment)]

    @property
    def segments(self) -> list[str]:
        """What the model translates, in order; empty when the text has nothing to translate."""
        return [segment.text for segment in self._segments]

    def missing(self, index: int, translation: str) -> list[str]:
        """The protected spans and numbers of segment `index` that `translation` lost; empty when all survived.

        With several hypotheses for a segment, the best is the first one that misses nothing.
        """
        return missing_spans(self._segments[index].text, translation)

    def join(self, translations: Sequence[str]) -> str:
        """The document with `translations` in place of the segments; ValueError when their number differs."""
        return "".join(self._fill(translations, lambda segment, translation: [self._spell(segment, translation)]))

    def parts(self) -> list[Plan]:
        """A plan for each segment and what is between it and the one before, or the end; joined they are the whole."""
        ends = [place + 1 for place, piece in enumerate(self.pieces) if isinstance(piece, Segment)]
        bounds = [0, *ends[:-1], len(self.pieces)]
        return [Plan(self.pieces[start:end], self._escape) for start, end in pairwise(bounds)]

    def retry(self, translations: Sequence[str], *, keeps_first: bool = False) -> Plan:
        """The plan of a second round: good translations are literals now, and every segment whose translation lost a
        span or a number is cut around all of those it has; but with `keeps_first` not the first one.
        Separators that a number lost are put back.
        """
        kept = self._segments[0] if keeps_first and self._segments else None

        def check(segment: Segment, translation: str) -> list[str | Segment]:
            if segment is kept or not missing_spans(segment.text, translation):
                return [self._spell(segment, translation)]
            repaired = repair_numbers(segment.text, translation)
            if not missing_spans(segment.text, repaired):
                return [self._spell(segment, repaired)]
            return [
                Segment(text, self._escape(text)) if is_text else self._escape(text)
                for text, is_text in cut_around(segment.text)
            ]

        return Plan(self._fill(translations, check), self._escape)

    def _fill(self, translations: Sequence[str], replace: Callable[[Segment, str], list[_Piece]]) -> list[str | _Piece]:
        if len(translations) != len(self._segments):
            raise ValueError(f"{len(translations)} translations were given for {len(self._segments)} segments")
        remaining = iter(translations)
        filled: list[str | _Piece] = []
        for piece in self.pieces:
            if isinstance(piece, Segment):
                filled += replace(piece, next(remaining))
            else:
                filled.append(piece)
        return filled

    def _spell(self, segment: Segment, translation: str) -> str:
        # White space at the ends belongs to the literals around the segment, never to the translation.
        translation = translation.strip()
        # A sentence that the model answers with nothing stays in its own language: untranslated is better than lost.
        if not translation or translation == segment.text:
            return segment.source
        return self._escape(translation)
