from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.service.page.conftest import Stage, Visit, staged, visiting

TEXT, OUTPUT, WORDS = "#q", "#output", "#output .word"
SOURCE, TARGET = "#translate-form [name=source]", "#translate-form [name=target]"


def write(page: Page, text: str) -> None:
    page.locator(TEXT).fill(text)


def lit(page: Page) -> list[str]:
    return page.locator("#backdrop mark").all_text_contents()


def test_typing_translates_with_what_was_detected_and_alternatives(visit: Visit) -> None:
    page = visit.open()
    write(page, "The house is old; where is the key?")
    expect(page.locator(OUTPUT)).to_have_text("THE HOUSE IS OLD; WHERE IS THE KEY?")
    expect(page.locator("#detected")).to_contain_text("Detected: English (")
    alternatives = page.locator("#alternatives-list button")
    expect(alternatives).to_have_text(["THE HOUSE IS OLD; WHERE IS THE KEY?!", "THE HOUSE IS OLD; WHERE IS THE KEY?!!"])
    alternatives.nth(1).click()
    expect(page.locator(OUTPUT)).to_have_text("THE HOUSE IS OLD; WHERE IS THE KEY?!!")
    expect(alternatives.nth(1)).to_have_text("THE HOUSE IS OLD; WHERE IS THE KEY?")
    write(page, "")
    expect(page.locator(OUTPUT)).to_have_text("")
    expect(page.locator("#alternatives")).to_be_hidden()


def test_swapping_turns_languages_and_texts(visit: Visit) -> None:
    page = visit.open()
    page.locator(SOURCE).select_option("English")
    expect(page.locator(TARGET)).to_have_value("de")
    assert page.locator(TARGET).locator("option").all_text_contents() == ["German"]
    write(page, "a b")
    expect(page.locator(OUTPUT)).to_have_text("A B")
    page.get_by_role("button", name="Swap the languages").click()
    assert (page.locator(SOURCE).input_value(), page.locator(TARGET).input_value()) == ("de", "en")
    assert page.locator(TEXT).input_value() == "A B"


def test_one_request_is_made_for_what_is_typed_at_a_stretch(visit: Visit, stage: Stage) -> None:
    page = visit.open()
    page.locator(SOURCE).select_option("English")
    before = len(stage.translator.requests)
    page.locator(TEXT).press_sequentially("a b c d e", delay=5)
    expect(page.locator(OUTPUT)).to_have_text("A B C D E")
    assert len(stage.translator.requests) == before + 1


def test_an_answer_that_is_too_late_is_dropped_and_its_work_stopped(visit: Visit, stage: Stage) -> None:
    page = visit.open()
    page.locator(SOURCE).select_option("English")
    stage.translator.hold()
    cancelled = stage.translator.num_cancelled
    try:
        write(page, "a")
        expect(page.locator("#translate-status")).to_have_text("Translating …")
        write(page, "b")
        with page.expect_request("**/translate"):
            pass
    finally:
        stage.translator.release()
    expect(page.locator(OUTPUT)).to_have_text("B")
    assert stage.translator.num_cancelled == cancelled + 1


def test_the_text_is_copied(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage.url, permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.open()
        write(page, "a b")
        expect(page.locator(OUTPUT)).to_have_text("A B")
        page.get_by_role("button", name="Copy").click()
        expect(page.locator("#translate-status")).to_have_text("Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == "A B"


def test_pointing_at_a_word_lights_up_those_it_looks_at(
    visit: Visit, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.translator, "translate", lambda text: text)
    line = "😀 a b c d e"  # a browser counts two for the first sign, the server one
    stage.plant(line, num_words=5)
    page = visit.open()
    asked = visit.requests_to("/attention")
    page.locator(SOURCE).select_option("English")
    write(page, f"\n{line}")
    words, hint = page.locator(WORDS), page.locator("#word-hint")
    expect(words).to_have_text(list("abcde"))
    assert asked == []  # before somebody points
    words.nth(1).hover()
    expect(hint).to_have_text("b ← d")
    assert lit(page) == ["d"]
    page.locator("h1").hover()
    expect(page.locator("#backdrop mark")).to_have_count(0)
    words.nth(0).focus()
    for place, word in enumerate("abcde"):
        expect(words.nth(place)).to_be_focused()
        expect(hint).to_have_text(f"{word} ← {'edcba'[place]}")
        assert lit(page) == ["edcba"[place]]
        page.keyboard.press("ArrowRight")
    (request,) = asked  # one answer serves all words of a line
    assert (request["q"], request["target_text"], request["kind"]) == (line, line, "cross")


def test_what_keeps_words_from_lighting_up_is_said(visit: Visit, stage: Stage) -> None:
    visit.expected_statuses = {422}
    page = visit.open()
    page.locator(SOURCE).select_option("English")
    write(page, "q" * 70)  # a token for each letter
    expect(page.locator(WORDS)).to_have_text(["Q" * 70])
    page.locator(WORDS).hover()
    expect(page.locator("#word-hint")).to_contain_text("`q` has ")
    expect(page.locator("#word-hint")).to_contain_text("allowed: 64")


def test_errors_stand_beside_the_text_that_caused_them(browser: Browser) -> None:
    with staged(max_text_characters=20) as stage, visiting(browser, stage.url) as visit:
        visit.expected_statuses = {429}
        page = visit.open()
        expect(page.locator(TEXT)).to_have_attribute("maxlength", "20")
        stage.translator.max_waiting = 0
        write(page, "a b")
        error = page.get_by_role("alert")
        expect(error).to_contain_text("Try again in 3 s")
        stage.translator.max_waiting = 100
        page.locator(TEXT).press("Control+Enter")
        expect(page.locator(OUTPUT)).to_have_text("A B")
        expect(error).to_be_hidden()


def test_the_attention_of_a_translation_is_a_step_away(visit: Visit) -> None:
    page = visit.open()
    page.locator(SOURCE).select_option("English")
    write(page, "a b c")
    expect(page.locator(OUTPUT)).to_have_text("A B C")
    page.get_by_role("button", name="Show its attention").click()
    expect(page.get_by_role("tab", name="Attention")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#attention-text")).to_have_text("Translation: A B C")
    expect(page.locator("#attention-view svg")).to_be_visible()
