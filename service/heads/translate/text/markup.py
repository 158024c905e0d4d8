"""A text as it is written, plain or with tags, to a `Plan`. What carries tags stands behind `split_document` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from service.heads.translate.text.html import escape_text, html_runs
from service.heads.translate.text.plan import Plan
from service.heads.translate.text.runs import Run, RunBuilder, plan_of_runs
from service.heads.translate.text.segment import CountTokens, Splitting, split_text
from service.heads.translate.text.xml import escape_xml, xml_runs

TextFormat = Literal["text", "html", "xml"]


@dataclass(frozen=True, slots=True)
class Markup:
    """How a text is written, and how it may be cut.

    `splitting` None is what the format means: line breaks cut plain text and XML, and not HTML. Nothing inside of the
    elements `ignored_tags` is translated. A tag ends a sentence, whichever it is: so `splitting_tags` have their way,
    and `non_splitting_tags` are for a carrier of tags that keeps a sentence whole.
    """

    format: TextFormat = "text"
    splitting: Splitting | None = None
    ignored_tags: frozenset[str] = field(default_factory=frozenset)
    splitting_tags: frozenset[str] = field(default_factory=frozenset)
    non_splitting_tags: frozenset[str] = field(default_factory=frozenset)


def split_document(document: str, markup: Markup, language: str, max_tokens: int, count_tokens: CountTokens) -> Plan:
    """Cut `document` into sentences of `language` of at most `max_tokens` tokens each.

    Each run of text between two tags is cut by itself: a sentence with tags inside is several runs. With the segments
    left as they are, `join` gives `document` again to the last character. Raises MarkupError for XML that is not
    well-formed.
    """
    splitting = markup.splitting or ("sentences" if markup.format == "html" else "lines")
    folded = splitting != "lines"
    if markup.format == "text" and not folded:
        return split_text(document, language, max_tokens, count_tokens)
    runs: Iterator[Run]
    escape: Callable[[str], str]
    if markup.format == "html":
        # The names of HTML's elements have no case.
        ignored_tags = {tag.lower() for tag in markup.ignored_tags}
        runs, escape = html_runs(document, ignored_tags=ignored_tags, folded=folded), escape_text
    elif markup.format == "xml":
        runs, escape = xml_runs(document, ignored_tags=markup.ignored_tags, folded=folded), escape_xml
    else:
        run = RunBuilder()
        run.add_text(document, 0, folded=True)
        runs, escape = run.take(len(document)), str
    return plan_of_runs(
        document,
        list(runs),
        escape,
        language=language,
        splitting=splitting,
        max_tokens=max_tokens,
        count_tokens=count_tokens,
    )
