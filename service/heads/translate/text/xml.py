"""The text of an XML document or fragment: that between the tags, in runs; all else keeps every character."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator
from xml.parsers import expat

from service.errors import InvalidRequestError
from service.heads.translate.text.runs import Run, RunBuilder

_DECLARATION = re.compile(r"\s*<(?:\?xml|!DOCTYPE)\s")
_TOKEN = re.compile(
    r"(?P<kept><!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>)"
    r"""|<(?P<close>/?)(?P<tag>[^\s/>]+)(?:[^"'>]|"[^"]*"|'[^']*')*?(?P<empty>/?)>"""
    r"|(?P<reference>&[^;]+;)"
    r"|(?P<text>[^<&]+)",
    re.DOTALL,
)


class MarkupError(InvalidRequestError):
    """A text whose tags cannot be read."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"the XML cannot be read: {message} (line {line}, column {column})", parameter="text")


def xml_runs(document: str, *, ignored_tags: Collection[str], folded: bool) -> Iterator[Run]:
    """The runs of text to translate, with positions in `document`; none inside of the elements `ignored_tags`.

    What is in a CDATA section stays as it is. Raises MarkupError for XML that is not well-formed, and for a document
    type, which could define entities.
    """
    _check(document)
    run = RunBuilder()
    ignored = 0  # how many of the open elements are ignored ones
    for token in _TOKEN.finditer(document):
        start, end = token.span()
        if ignored == 0 and token["text"] is not None:
            run.add_text(token["text"], start, folded=folded)
        elif ignored == 0 and token["reference"] is not None:
            run.add_reference(html.unescape(token["reference"]), start, end)
        else:
            yield from run.take(start)
        if token["tag"] in ignored_tags and not token["empty"]:
            ignored += -1 if token["close"] else 1
    yield from run.take(len(document))


def escape_xml(text: str) -> str:
    """Text as XML spells it between tags."""
    return html.escape(text, quote=False)


def _check(document: str) -> None:
    """MarkupError where `document` is neither a well-formed document nor, inside of an element, a part of one."""
    before, after = ("", "") if _DECLARATION.match(document) else ("<_>", "</_>")
    parser = expat.ParserCreate("utf-8")

    def fault(message: str, line: int, offset: int) -> MarkupError:
        return MarkupError(message, line, offset + 1 - (len(before) if line == 1 else 0))

    def refuse(*_: object) -> None:
        raise fault("a document type is not accepted", parser.CurrentLineNumber, parser.CurrentColumnNumber)

    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(f"{before}{document}{after}".encode(errors="replace"), True)
    except expat.ExpatError as error:
        raise fault(expat.ErrorString(error.code), error.lineno, error.offset) from error
