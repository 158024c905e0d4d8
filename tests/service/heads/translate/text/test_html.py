from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.heads.translate.text.html import find_runs
from service.heads.translate.text.markup import Markup, split_document
from service.heads.translate.text.plan import Plan


def split(document: str) -> Plan:
    return split_document(document, Markup("html"), "en", 100, lambda texts: [len(text) // 4 + 1 for text in texts])


FRAGMENTS = [
    *(
        "<p>",
        "</p>",
        "<b>",
        "</b>",
        "<b class='x'>",
        "<br/>",
        '<a href="?a=1&b=2">',
        "</a>",
        "<img alt='A dog'>",
        "<li>",
    ),
    *(
        "<!-- a comment -->",
        "<!--",
        "-->",
        "<script>if (a<b) {}</script>",
        "<style>p {}</style>",
        "<title>",
        "</title>",
    ),
    *("<pre>", "</pre>", "<textarea>", "</textarea>", "<svg>", "</svg>", "<p translate=no>", "<i class=notranslate>"),
    *(
        "&amp;",
        "&lt;",
        "&eacute;",
        "&nbsp;",
        "&notit;",
        "&#233",
        "&#x1F600;",
        "&unknown;",
        "<",
        ">",
        "&",
        "</",
        "<?x?>",
    ),
    *("<![CDATA[x]]>", "<!DOCTYPE html>", "<b", "\x00", "\r\n", "\r", "\n", "  ", "\t", "\ud800"),
    *("Hello world. ", "Good", " bye", "😀", "https://a.b", "5", "Größe", "`", "{x}"),
]
documents = st.one_of(st.text(max_size=100), st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([each for each in FRAGMENTS if each != "\r"]), max_size=30).map("".join))
def test_line_ends_do_not_move_what_is_translated(document: str) -> None:
    document = document.replace("\r\n", "\n")
    windows = document.replace("\n", "\r\n")
    for cut in (split, find_runs):
        plan, windows_plan = cut(document), cut(windows)
        marks = [f"[{index}]" for index in range(len(plan.segments))]
        assert len(windows_plan.segments) == len(marks)
        assert windows_plan.join(marks) == plan.join(marks).replace("\n", "\r\n")


@settings(deadline=None)  # the machine may be busy
@given(documents)
def test_segments_left_as_they_are_join_to_the_document(document: str) -> None:
    for plan in (split(document), find_runs(document)):
        assert plan.join(plan.segments) == document


@settings(deadline=None)  # the machine may be busy
@given(documents)
def test_a_second_round_without_losses_is_the_document_too(document: str) -> None:
    plan = split(document)
    assert plan.retry(plan.segments).join([]) == document


@pytest.mark.parametrize(
    ("document", "segments"),
    [
        ("<p>Hello <b>big</b> world.</p>", ["Hello", "big", "world."]),
        ("<p>One sentence\n   in two lines. And\tanother.</p>", ["One sentence in two lines.", "And another."]),
        ("<pre>One line\n  and another</pre>", ["One line", "and another"]),
        ("<p translate='no'>Keep</p><p>Take</p>", ["Take"]),
        ("<p translate=no>Keep<p>Take", ["Take"]),
        ("<div translate=no>Keep <i translate=yes>take</i></div>", ["take"]),
        ("<span class='a notranslate b'>Keep <b>this</b></span> take", ["take"]),
        ("Press <kbd>Ctrl</kbd> or type <code>make all</code> now", ["Press", "or type", "now"]),
        ("<script>var a = 'text';</script><style>p {}</style><!-- note --><title>A title</title>", ["A title"]),
        ("Caf&eacute; &lt;3 &amp; bar", ["Café <3 & bar"]),
        ("<img alt='A dog' title='x'>😀 12", []),
        ("<p>Unclosed <b>bold <i>both</p> rest", ["Unclosed", "bold", "both", "rest"]),
    ],
)
def test_what_is_translated(document: str, segments: list[str]) -> None:
    assert split(document).segments == segments


def test_translations_are_escaped_and_everything_else_is_kept() -> None:
    document = "<!DOCTYPE html>\r\n<P CLASS=x data-a='1'>Fish &amp; chips<BR/>\r\n  for  you</p><!-- c --><hr"
    plan = split(document)
    assert plan.join([segment.upper() + " <&\u00a0>" for segment in plan.segments]) == (
        "<!DOCTYPE html>\r\n<P CLASS=x data-a='1'>FISH &amp; CHIPS &lt;&amp;&nbsp;&gt;<BR/>\r\n"
        "  FOR YOU &lt;&amp;&nbsp;&gt;</p><!-- c --><hr"
    )


def test_a_lost_placeholder_is_kept_in_the_second_round() -> None:
    plan = split("<p>Hello {name} &amp; friends.</p>").retry(["Hallo Freunde."])
    assert plan.join(["Hallo", "& Freunde."]) == "<p>Hallo {name} &amp; Freunde.</p>"
