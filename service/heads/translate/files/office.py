"""Office Open XML (ECMA-376): Word documents (.docx) and PowerPoint presentations (.pptx).

Only the text nodes of paragraphs are replaced, in place, so everything else in the package stays as it was. Word cuts a
sentence into runs wherever it was edited: adjacent runs with the same formatting are one text again here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lxml import etree

from service.heads.translate.files.archive import Archive
from service.heads.translate.files.errors import InvalidDocumentError

_XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_PRESENTATION = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# Marks of the spelling checker and the editing history between two runs, which are invisible.
_INVISIBLE = frozenset(
    _WORD + name for name in ("proofErr", "bookmarkStart", "bookmarkEnd", "lastRenderedPageBreak", "rPr")
)


@dataclass(frozen=True, slots=True)
class _Text:
    """Adjacent text nodes with the same formatting."""

    nodes: list[etree._Element]

    @property
    def content(self) -> str:
        return "".join(node.text or "" for node in self.nodes)

    def replace(self, text: str) -> None:
        """Put everything into the first node; the others stay, empty."""
        for node in self.nodes[1:]:
            node.text = ""
        self.nodes[0].text = _NOT_XML.sub("", text)
        self.nodes[0].set(_XML_SPACE, "preserve")


class _OfficeDocument:
    """The package with the parts that hold text parsed."""

    _required: str
    _roots_of_parts: tuple[tuple[re.Pattern[str], str], ...]
    """Names of the parts that hold text, and the root element that the standard gives them."""
    _namespace: str

    def __init__(self, data: bytes) -> None:
        self._archive = Archive(data)
        if self._required not in self._archive.names:
            raise InvalidDocumentError(f"the file is not a document of its kind: it has no {self._required}")
        self._roots = {
            name: self._archive.parse(name, root_tag)
            for name in self._archive.names
            for pattern, root_tag in self._roots_of_parts
            if pattern.fullmatch(name)
        }
        self._texts = {name: list(_texts(root, self._namespace)) for name, root in self._roots.items()}
        self.texts = [text.content for texts in self._texts.values() for text in texts]

    def render(self, translations: Sequence[str]) -> bytes:
        remaining = iter(translations)
        changed: dict[str, bytes] = {}
        for name, texts in self._texts.items():
            pairs = [(text, next(remaining)) for text in texts]
            different = [(text, translation) for text, translation in pairs if translation != text.content]
            for text, translation in different:
                text.replace(translation)
            if different:
                changed[name] = etree.tostring(
                    self._roots[name].getroottree(), xml_declaration=True, encoding="UTF-8", standalone=True
                )
        return self._archive.write(changed)


class WordDocument(_OfficeDocument):
    """Paragraphs, tables, text boxes, hyperlinks, headers, footers, notes and comments of a .docx file."""

    _required = "word/document.xml"
    _roots_of_parts = (
        (re.compile(r"word/document\.xml"), f"{_WORD}document"),
        (re.compile(r"word/header\d*\.xml"), f"{_WORD}hdr"),
        (re.compile(r"word/footer\d*\.xml"), f"{_WORD}ftr"),
        (re.compile(r"word/footnotes\.xml"), f"{_WORD}footnotes"),
        (re.compile(r"word/endnotes\.xml"), f"{_WORD}endnotes"),
        (re.compile(r"word/comments\.xml"), f"{_WORD}comments"),
    )
    _namespace = _WORD


class PresentationDocument(_OfficeDocument):
    """Slides and their notes of a .pptx file; the text of masters and layouts is never shown."""

    _required = "ppt/presentation.xml"
    _roots_of_parts = (
        (re.compile(r"ppt/presentation\.xml"), f"{_PRESENTATION}presentation"),
        (re.compile(r"ppt/slides/slide\d*\.xml"), f"{_PRESENTATION}sld"),
        (re.compile(r"ppt/notesSlides/notesSlide\d*\.xml"), f"{_PRESENTATION}notes"),
        (re.compile(r"ppt/diagrams/data\d*\.xml"), f"{_DIAGRAM}dataModel"),
    )
    _namespace = _DRAWING


def _texts(root: etree._Element, namespace: str) -> Iterator[_Text]:
    for paragraph in root.iter(f"{namespace}p"):
        nodes: list[etree._Element] = []
        previous = ""
        for node, formatting in _text_nodes(paragraph, namespace):
            if nodes and (node is None or formatting != previous):
                yield from _with_words(nodes)
                nodes = []
            if node is not None:
                nodes.append(node)
                previous = formatting
        yield from _with_words(nodes)


def _with_words(nodes: list[etree._Element]) -> Iterator[_Text]:
    text = _Text(nodes)
    if text.content.strip():
        yield text


def _text_nodes(paragraph: etree._Element, namespace: str) -> Iterator[tuple[etree._Element | None, str]]:
    """The text nodes of a paragraph with their formatting, and None for any other element between two of them."""
    for run in _runs(paragraph, namespace):
        if run.tag != f"{namespace}r":
            if run.tag not in _INVISIBLE:
                yield None, ""
            continue
        formatting = _formatting(run, namespace)
        for child in run:
            if child.tag == f"{namespace}t":
                yield child, formatting
            elif child.tag not in _INVISIBLE and child.tag != f"{namespace}rPr":
                yield None, ""


def _runs(element: etree._Element, namespace: str) -> Iterator[etree._Element]:
    """Runs at any depth (hyperlinks, insertions, content controls), but not those of a paragraph inside of this one.

    What holds runs comes before and after them, as what stands between two texts. Every element is visited once.
    """
    whole = (f"{namespace}r", f"{namespace}p", *_INVISIBLE)
    for child in element.iterchildren(etree.Element):
        yield child
        if child.tag not in whole and len(child):
            yield from _runs(child, namespace)
            yield child


def _formatting(run: etree._Element, namespace: str) -> str:
    properties = run.find(f"{namespace}rPr")
    if properties is None:
        return ""
    # The language of the proofing tools, and marks of the checker, are no formatting that a reader sees.
    shown = [child for child in properties if child.tag not in (f"{namespace}lang", f"{namespace}noProof")]
    attributes = {key: value for key, value in properties.attrib.items() if key not in ("lang", "dirty", "err")}
    return repr(sorted(attributes.items())) + "".join(etree.tostring(child, encoding="unicode") for child in shown)
