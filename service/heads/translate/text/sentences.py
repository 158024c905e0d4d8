"""Sentence boundaries, by sentencex (docs/decisions/0030-sentence-splitting.md), with two corrections of ours."""

from __future__ import annotations

import re

import sentencex

from service.heads.translate.text.protect import find_spans

_GERMAN_MONTHS = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
    "|Jan|Feb|Mär|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez|Jahrhundert|Jh|Quartal|Halbjahr|Weltkrieg"
)
_GERMAN_DETERMINERS = (
    "de[rsmn]|die|das|am|[ivz]om|[iv]m|zu[mr]|beim|ab|seit|bis|und|sowie|jede[rsmn]?|jeweils"
    "|(?:ein|mein|dein|sein|ihr|unser|euer|eur)e?[rsmn]?"
)
_ORDINAL_END = re.compile(r"(?:^|\D)\d{1,2}\.\s*$")
_ORDINAL_WITH_DETERMINER_END = re.compile(rf"(?:^|\W)(?:{_GERMAN_DETERMINERS})\s+\d{{1,2}}\.\s*$", re.IGNORECASE)
_MONTH_START = re.compile(rf"(?:{_GERMAN_MONTHS})\b")
_LONGEST_ORDINAL_CONTEXT = 24
_SPAN_WITH_SPACE = re.compile(r"[<{`\\]")


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of one paragraph, white space included, so that they join to `text` again.

    A language that sentencex does not know is split by its general rules.
    """
    sentences: list[str] = sentencex.segment(language, text)
    if len(sentences) < 2:
        return [text]
    # A boundary inside an address has no white space before it; other spans with a space inside begin with these.
    may_cut_span = _SPAN_WITH_SPACE.search(text) or not all(sentence[-1].isspace() for sentence in sentences[:-1])
    inside = find_spans(text) if may_cut_span else []
    merged: list[str] = []
    position = 0
    span = 0
    for sentence in sentences:
        while span < len(inside) and inside[span][1] <= position:
            span += 1
        cuts_span = span < len(inside) and inside[span][0] < position
        if merged and (cuts_span or (language == "de" and _is_german_ordinal(merged[-1], sentence))):
            merged[-1] += sentence
        else:
            merged.append(sentence)
        position += len(sentence)
    return merged


def _is_german_ordinal(before: str, after: str) -> bool:
    """German writes 3rd as "3.", and sentencex takes the stop before a capital for the end of a sentence."""
    context = before[-_LONGEST_ORDINAL_CONTEXT:]
    if _ORDINAL_END.search(context) is None:
        return False
    return bool(_MONTH_START.match(after) or _ORDINAL_WITH_DETERMINER_END.search(context))
