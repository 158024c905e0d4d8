"""The text of an HTML document or fragment: that between the tags, in runs; everything else keeps every byte.

The document is tokenised (turbohtml, the WHATWG's algorithm, see docs/decisions/0032-html.md) but never built into a
tree and written again, so tags, attributes, comments, scripts and even mistakes come out as they went in. Each run of
text between two tags is translated by itself: a sentence with inline markup is several runs.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import turbohtml
from turbohtml import TokenType

from service.heads.translate.text.plan import Plan, Segment
from service.heads.translate.text.runs import Run, RunBuilder

_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
_NOT_TRANSLATED = frozenset(
    ["script", "style", "code", "kbd", "samp", "var", "tt", "math", "iframe", "noembed", "noframes", "xmp", "plaintext"]
)  # code, and elements whose content is no text
_PREFORMATTED = frozenset(("pre", "textarea", "listing"))
_FOREIGN = frozenset(("svg", "math"))
_CLOSES_P = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "center",
        "details",
        "dialog",
        "dir",
        "div",
        "dl",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hgroup",
        "hr",
        "main",
        "menu",
        "nav",
        "ol",
        "p",
        "pre",
        "search",
        "section",
        "summary",
        "table",
        "ul",
    ]
)
_CLOSES_SIBLING = {
    "li": ("li",),
    "dt": ("dt", "dd"),
    "dd": ("dt", "dd"),
    "option": ("option",),
    "td": ("td", "th"),
    "th": ("td", "th"),
    "tr": ("td", "th", "tr"),
}


def find_runs(document: str) -> Plan:
    """A plan with one segment for each run of text between two tags, of any length, for a caller that cuts sentences
    itself; no second round is meant for it.
    """
    pieces: list[str | Segment] = []
    end = 0
    for run in html_runs(document):
        text = run.text.strip()
        first = len(run.text) - len(run.text.lstrip())
        start, stop = run.bounds[first], run.bounds[first + len(text)]
        if text:
            pieces += [document[end:start], Segment(text, document[start:stop])]
            end = stop
    pieces.append(document[end:])
    return Plan(pieces, escape_text)


def escape_text(text: str) -> str:
    """Text as HTML spells it between tags."""
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")


def html_runs(document: str, *, ignored_tags: Collection[str] = (), folded: bool = True) -> Iterator[Run]:
    """The runs of text to translate, with positions in `document`.

    Nothing inside of `translate="no"`, `class="notranslate"`, code, scripts or the elements `ignored_tags` is one.
    `folded` makes one space of all white space between two words, but not where it is preformatted.
    """
    # The tokeniser reads every line break as one character, as HTML wants; positions are moved back in the end.
    read = document.replace("\r\n", "\n").replace("\r", "\n")
    breaks = [match.start() - index for index, match in enumerate(re.finditer("\r\n", document))]
    for run in _runs_with_one_line_break(read, _NOT_TRANSLATED.union(ignored_tags), folded=folded):
        if breaks:
            yield Run(run.text, [bound + bisect_left(breaks, bound) for bound in run.bounds])
        else:
            yield run


def _runs_with_one_line_break(document: str, ignored_tags: Collection[str], *, folded: bool) -> Iterator[Run]:
    elements = _OpenElements(ignored_tags)
    run = RunBuilder()
    position = 0
    for token in turbohtml.tokenize(document, resolve_references=False, capture_source=True):
        start = position
        position += len((token.data or "") if token.source is None else token.source)
        if token.type == TokenType.TEXT and elements.translate:
            run.add_text(document[start:position], start, folded=folded and not elements.preformatted)
        elif token.type == TokenType.CHARACTER_REFERENCE and elements.translate:
            run.add_reference(token.data or "", start, position)
        else:
            yield from run.take(start)
        if token.type == TokenType.START_TAG:
            elements.open(token)
        elif token.type == TokenType.END_TAG:
            elements.close(token.tag or "")
    yield from run.take(position)


@dataclass(frozen=True, slots=True)
class _Element:
    tag: str
    translate: bool
    preformatted: bool
    foreign: bool


class _OpenElements:
    """As much of HTML's tree building as it takes to know whether a text is to be translated."""

    def __init__(self, ignored_tags: Collection[str]) -> None:
        self._ignored_tags = ignored_tags
        self._stack = [_Element("", translate=True, preformatted=False, foreign=False)]
        self._counts: Counter[str] = Counter()

    @property
    def translate(self) -> bool:
        return self._stack[-1].translate

    @property
    def preformatted(self) -> bool:
        return self._stack[-1].preformatted

    def open(self, token: turbohtml.Token) -> None:
        tag = token.tag or ""
        self._close_implied(tag)
        parent = self._stack[-1]
        foreign = parent.foreign or tag in _FOREIGN
        if tag in _VOID or (foreign and token.self_closing):
            return
        translate = parent.translate
        wanted = token.attr("translate")
        if wanted is not None and wanted.lower() in ("no", "yes", ""):
            translate = wanted.lower() != "no"
        if tag in self._ignored_tags or "notranslate" in (token.attr("class") or "").split():
            translate = False
        self._stack.append(_Element(tag, translate, parent.preformatted or tag in _PREFORMATTED, foreign))
        self._counts[tag] += 1

    def close(self, tag: str) -> None:
        """Close the innermost open element of this name and all inside of it; an end tag without one is ignored."""
        if not self._counts[tag]:
            return
        while True:
            closed = self._stack.pop().tag
            self._counts[closed] -= 1
            if closed == tag:
                return

    def _close_implied(self, tag: str) -> None:
        if tag in _CLOSES_P:
            self.close("p")
        while self._stack[-1].tag in _CLOSES_SIBLING.get(tag, ()):
            self.close(self._stack[-1].tag)
