from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.heads.translate.text.markup import Markup, split_document
from service.heads.translate.text.plan import Plan
from service.heads.translate.text.xml import MarkupError


def split(document: str, text_format: Any = "text", **options: Any) -> Plan:
    markup = Markup(text_format, **options)
    return split_document(document, markup, "en", 100, lambda texts: [len(text) // 4 + 1 for text in texts])


def shouted(plan: Plan) -> str:
    return plan.join([segment.upper() for segment in plan.segments])


TWO_LINES = "One line\nand its end. Another."


@pytest.mark.parametrize(
    ("splitting", "segments"),
    [
        (None, ["One line", "and its end.", "Another."]),
        ("lines", ["One line", "and its end.", "Another."]),
        ("sentences", ["One line and its end.", "Another."]),
        ("off", ["One line and its end. Another."]),
    ],
)
def test_text_is_cut_where_it_is_asked_for(splitting: Any, segments: list[str]) -> None:
    plan = split(TWO_LINES, splitting=splitting)
    assert plan.segments == segments
    assert plan.join(segments) == TWO_LINES  # what is not translated keeps its line break


def test_html_ignores_line_breaks_unless_it_is_asked_to_cut_there() -> None:
    assert split(f"<p>{TWO_LINES}</p>", "html").segments == ["One line and its end.", "Another."]
    assert split(f"<p>{TWO_LINES}</p>", "html", splitting="lines").segments == ["One line", "and its end.", "Another."]
    assert split(f"<p>{TWO_LINES}</p>", "html", splitting="off").segments == ["One line and its end. Another."]


def test_html_leaves_ignored_elements_alone() -> None:
    document = "<p>Good <KEEP>morning <b>x</b></keep> dear</p>"
    assert shouted(split(document, "html", ignored_tags=frozenset(["Keep"]))) == (
        "<p>GOOD <KEEP>morning <b>x</b></keep> DEAR</p>"
    )


def test_xml_keeps_what_is_no_text() -> None:
    document = (
        '<?xml version="1.0"?>\n<title>A <b a="x>y" c=\'"\'>dog</b></title>'.replace("<title>", "<r><title>")
        + "<!-- no --><![CDATA[<no>]]><?no no?><br/>Bread &amp; butter &#x41;</r>"
    )
    assert shouted(split(document, "xml")) == (
        '<?xml version="1.0"?>\n<r><title>A <b a="x>y" c=\'"\'>DOG</b></title>'
        "<!-- no --><![CDATA[<no>]]><?no no?><br/>BREAD &amp; BUTTER A</r>"
    )


def test_xml_elements_may_be_ignored_and_their_names_have_a_case() -> None:
    document = "one <x>two <x>three</x> four</x> five <X>six</X> <x/>seven"
    assert shouted(split(document, "xml", ignored_tags=frozenset(["x"]))) == (
        "ONE <x>two <x>three</x> four</x> FIVE <X>SIX</X> <x/>SEVEN"
    )


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ("<a>one", "mismatched tag (line 1, column 9)"),
        ("one</a>", "mismatched tag (line 1, column 6)"),
        ("one\n & two", "not well-formed (invalid token) (line 2, column 3)"),
        ("a</_><_>b", "junk after document element (line 1, column 6)"),
        ("&nbsp;", "undefined entity (line 1, column 1)"),
        ('<!DOCTYPE r [<!ENTITY e "x">]><r>&e;</r>', "a document type is not accepted (line 1, column 13)"),
        ('<?xml version="1.0"?>\n<!DOCTYPE r><r/>', "a document type is not accepted (line 2, column 12)"),
    ],
)
def test_xml_that_cannot_be_read_is_refused(document: str, fault: str) -> None:
    with pytest.raises(MarkupError) as caught:
        split(document, "xml")
    assert str(caught.value) == f"the XML cannot be read: {fault}"
    assert caught.value.parameter == "text"


XML = [
    "<a>",
    "</a>",
    "<b/>",
    "<a b='>'>",
    "<!-- x -->",
    "<![CDATA[<]]>",
    "&lt;",
    "&#233;",
    "\n",
    "  ",
    "Good bye. ",
    "5",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(XML), max_size=20).map("".join), st.sampled_from(["lines", "sentences", "off"]))
def test_segments_left_as_they_are_join_to_the_document(document: str, splitting: Any) -> None:
    try:
        plan = split(document, "xml", splitting=splitting)
    except MarkupError:
        return
    assert plan.join(plan.segments) == document
