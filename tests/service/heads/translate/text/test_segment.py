from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.heads.translate.text.plan import Plan
from service.heads.translate.text.segment import split_text


def count_words_and_letters(texts: Sequence[str]) -> list[int]:
    """A tokenizer of sorts: four characters a token, and at least one for each word."""
    return [max(len(text.split()), -(-len(text) // 4)) for text in texts]


def split(text: str, language: str = "en", max_tokens: int = 100) -> Plan:
    return split_text(text, language, max_tokens, count_words_and_letters)


FRAGMENTS = [
    *"\n \t.,;:!?()[]{}<>%$@#/\\\"'„“-–—…&|*`",
    *("\r\n", "\r", "\u2028", "\u00a0", "\u200d", "\ufe0f", "\u0301", "   ", "\x00", "\x1c", "\ud800"),
    *("Hello", "z. B.", "3. Oktober", "Dr.", "a", "Größe", "你好。", "3", "1,234.5", "5 p.m."),
    *("https://a.b/c(d).", "www.x.org", "a@b.de", "{name}", "{{ x }}", "%s", "%(n)d", "$VAR", "<b>", "<br/>", "&amp;"),
    *("😀", "👍🏽", "🇩🇪", "❤️", "- ", "* ", "/usr/bin/x", "`code`", "@me", ":)"),
]
texts = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join))


@settings(deadline=None)  # the machine may be busy
@given(text=texts, language=st.sampled_from(["en", "de", "xx"]), max_tokens=st.integers(1, 60))
def test_segments_left_as_they_are_join_to_the_text(text: str, language: str, max_tokens: int) -> None:
    plan = split(text, language, max_tokens)
    assert plan.join(plan.segments) == text


@settings(deadline=None)  # the machine may be busy
@given(text=texts, max_tokens=st.integers(1, 60))
def test_segments_fit_are_trimmed_and_have_letters(text: str, max_tokens: int) -> None:
    segments = split(text, max_tokens=max_tokens).segments
    for segment, count in zip(segments, count_words_and_letters(segments), strict=True):
        assert count <= max_tokens or len(segment) == 1
        assert segment == segment.strip()
        assert any(character.isalpha() for character in segment)


@settings(deadline=None)  # the machine may be busy
@given(text=texts)
def test_a_second_round_loses_nothing_either(text: str) -> None:
    plan = split(text)
    second = plan.retry(["lost"] * len(plan.segments))
    kept = second.join(second.segments)
    for index, segment in enumerate(plan.segments):
        if plan.missing(index, "lost"):
            assert segment in kept


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Das gilt z. B. für Hunde.", "Es ist gut."]),
        ("de", ["Dr. Müller kam am 3. Oktober 1990 nach Berlin.", "Er blieb."]),
        ("de", ["Am 14. Juli, d. h. am Freitag, geht es los.", "Bis dann!"]),
        ("de", ["Der 2. Weltkrieg endete 1945.", "Danach kam Frieden."]),
        ("de", ["Das kostet ca. 3,50 Euro bzw. mehr.", "Wirklich?", "Ja!"]),
        ("de", ["„Komm her!“, sagte er.", "Sie lachte."]),
        ("de", ["Hr. Meier und Prof. Dr. h. c. Schmidt kommen.", "Gut."]),
        ("en", ["Dr. Smith met Mr. Jones at 5 p.m. on Monday.", "They talked."]),
        ("en", ["He lives in the U.S. and works for Acme Inc. in New York.", "Fine."]),
        ("en", ["See e.g. the book, i.e. page 5.", "Done."]),
        ("en", ["J. R. R. Tolkien wrote it.", "I read it."]),
        ("en", ["What?!", "No way!"]),
    ],
)
def test_sentences_are_found_in_spite_of_abbreviations(language: str, sentences: list[str]) -> None:
    assert split(" ".join(sentences), language).segments == sentences


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "\n\n",
        "😀",
        "😀 👍🏽\n🇩🇪",
        "12:30",
        "3.14 + 2 = ?!",
        "https://x.org/path?q=a",
        "me@example.org",
        "...",
        "👉 https://a.b",
        "%s",
        "{a}, {b}",
    ],
)
def test_a_text_without_words_has_no_segment(text: str) -> None:
    plan = split(text)
    assert plan.segments == []
    assert plan.join([]) == text


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("One line\nand another\r\n\r\n  Indented.\n", ["One line", "and another", "Indented."]),
        ("- first\n* second\n> quoted", ["first", "second", "quoted"]),
        ("Name\tAge\nAnna\t30", ["Name", "Age", "Anna"]),
        ("Great job 👍 See you soon 😀", ["Great job", "See you soon"]),
        ("Read more at https://x.org/a_(b).", ["Read more at"]),
        ("The rest (https://x.org) is easy.", ["The rest", "is easy."]),
        ("Hello {name}, you have %d new messages.", ["Hello {name}, you have %d new messages."]),
        ("See https://example.org/a/very/long/path/indeed for more.", ["See", "for more."]),
        ("Half \ud800 a pair.", ["Half", "a pair."]),
    ],
)
def test_layout_and_detached_spans_stay_out_of_the_segments(text: str, segments: list[str]) -> None:
    plan = split(text)
    assert plan.segments == segments
    assert plan.join(segments) == text


def test_a_translation_is_put_in_place_of_its_segment() -> None:
    plan = split("  Good morning!\n\n\tGood night. Sleep well. 😀\n")
    assert plan.join(["Guten Morgen!", " Gute Nacht. ", "Schlaf gut."]) == (
        "  Guten Morgen!\n\n\tGute Nacht. Schlaf gut. 😀\n"
    )


def test_the_number_of_translations_must_be_that_of_the_segments() -> None:
    with pytest.raises(ValueError, match="1 translations were given for 2 segments"):
        split("One. Two.").join(["Eins."])


def test_a_limit_below_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens is 0"):
        split("One.", max_tokens=0)


def test_a_long_sentence_is_cut_at_clauses_first() -> None:
    text = (
        "This is the first clause of the sentence; this is the second one, which is longer, and here it ends at last."
    )
    assert split(text, max_tokens=16).segments[0] == "This is the first clause of the sentence;"


def test_a_long_word_is_cut_without_a_loss() -> None:
    text = "x" * 1_000
    plan = split(text, max_tokens=10)
    assert all(len(segment) <= 40 for segment in plan.segments)
    assert plan.join(plan.segments) == text


def test_all_texts_are_counted_at_once() -> None:
    calls: list[int] = []

    def count(texts: Sequence[str]) -> list[int]:
        calls.append(len(texts))
        return count_words_and_letters(texts)

    split_text("A sentence. " * 500, "en", 100, count)
    assert calls == [500]
