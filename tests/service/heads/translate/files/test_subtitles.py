from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.heads.translate.files import InvalidDocumentError
from service.heads.translate.files.subtitles import SubtitleDocument

ONE = "1\n00:00:01,000 --> 00:00:02,000\n"


def texts(source: str) -> list[str]:
    return SubtitleDocument(source.encode()).texts


def rendered(source: str, *translations: str) -> str:
    return SubtitleDocument(source.encode()).render(translations).decode()


# A reader whose time grows with the square of the length does not end with these.
@pytest.mark.parametrize(
    "source",
    [
        ONE + "Hi" + "\n" * 2_000_000,
        "\n" * 2_000_000 + ONE + "Hi",
        ONE + "Hi" + " " * 2_000_000 + "\nyou",
        ONE + "Hi" + " \n" * 1_000_000 + "you",
        ONE + "\n".join(["word"] * 400_000),
        ONE + "<" * 2_000_000 + "\n" + "<i>" * 500_000,
        ONE + "- " * 1_000_000 + "\n" + "1" * 2_000_000 + ":",
        (ONE + "Hi\n\n") * 40_000,
    ],
    ids=["end", "start", "spaces", "blank-lines", "lines", "tags", "dashes", "subtitles"],
)
def test_long_runs_are_read_and_written_in_linear_time(source: str) -> None:
    document = SubtitleDocument(source.encode())
    assert document.render(document.texts) == source.encode()
    assert b"changed" in document.render([f"{text} changed" for text in document.texts])


LINES = st.sampled_from(
    [
        "1",
        "2",
        "00:00:01,000 --> 00:00:02,000",
        "0:0:1.5 --> 0:0:2 X1:40",
        "Hello",
        "- Hi",
        "<i>- Hi",
        " there ",
        "",
        " ",
    ]
)


@given(st.lists(LINES), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_is_not_changed_keeps_every_byte(lines: list[str], end: str, ends: bool) -> None:
    source = end.join([ONE.replace("\n", end) + "First", *lines]) + (end if ends else "")
    document = SubtitleDocument(source.encode())
    assert document.render(document.texts) == source.encode()
    marked = document.render([f"{index}@" for index, _ in enumerate(document.texts)])
    assert SubtitleDocument(marked).texts == [f"{index}@" for index, _ in enumerate(document.texts)]


def test_a_text_may_hold_blank_lines() -> None:
    source = ONE + "One\n\ntwo\n\n2\n00:00:03,000 --> 00:00:04,000\nThree\n"
    assert texts(source) == ["One  two", "Three"]
    assert rendered(source, "Eins zwei", "Drei") == source.replace("One\n\ntwo", "Eins\nzwei").replace("Three", "Drei")


def test_a_number_may_be_missing_and_a_number_may_be_text() -> None:
    source = "00:00:01,000 --> 00:00:02,000\nIn\n1984\n00:00:03,000 --> 00:00:04,000\nfour\n"
    assert texts(source) == ["In", "four"]
    source = "00:00:01,000 --> 00:00:02,000\nIn\n1984\n\n2\n00:00:03,000 --> 00:00:04,000\nfour\n"
    assert texts(source) == ["In 1984", "four"]


def test_a_subtitle_without_text_stays_so() -> None:
    source = ONE + "\n2\n00:00:03,000 --> 00:00:04,000\nText"
    assert texts(source) == ["Text"]
    assert rendered(source, "Wort") == source.replace("Text", "Wort")


def test_a_translation_in_several_lines_has_the_files_line_ends_and_no_blank_one() -> None:
    source = (ONE + "- One\n- Two\n\n").replace("\n", "\r\n")
    assert rendered(source, "- Eins\n\n- Zwei") == source.replace("One", "Eins").replace("Two", "Zwei")


def test_lines_are_about_equally_long() -> None:
    source = ONE + "one two three\nfour five\nsix seven\n"
    assert rendered(source, "eins zwei drei vier fünf sechs") == ONE + "eins zwei\ndrei vier\nfünf sechs\n"


@pytest.mark.parametrize("source", ["hello", "hello\n" + ONE + "Hi", "1\n\n" + ONE + "Hi"])
def test_what_stands_before_the_first_subtitle_is_refused(source: str) -> None:
    with pytest.raises(InvalidDocumentError, match="not a SubRip subtitle file"):
        texts(source)
