from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.service.page.conftest import Stage, Visit, staged, visiting

VIEW, READOUT, LINES = "#attention-view", "#attention-readout", "#attention-view .line:not(.faded)"
TOKENS = "#attention-view text.token"


def look(page: Page, text: str, translation: str = "") -> None:
    page.locator("#attention-form [name=text]").fill(text)
    page.locator("#attention-form [name=second]").fill(translation)
    page.get_by_role("button", name="Look").click()


def test_lines_lead_from_each_token_to_those_it_looks_at(visit: Visit, stage: Stage) -> None:
    page = visit.open("attention")
    expect(page.locator(LINES).first).to_be_attached()
    stage.plant("a b c d e", num_words=5)
    look(page, "a b c d e", "a b c d e")
    expect(page.locator("#attention-text")).to_have_text("Translation: a b c d e")
    expect(page.locator("#pick-kind")).to_have_value("cross")
    expect(page.locator(TOKENS)).to_have_text(
        ["a", "b", "c", "d", "e", "</s>", "<2de>", "a", "b", "c", "d", "e", "</s>"]
    )
    assert page.locator(LINES).count() == 6
    page.locator(TOKENS).nth(1).hover()
    expect(page.locator(READOUT)).to_contain_text("b → d 0.9")
    assert page.locator(LINES).count() == 1
    page.locator("h1").hover()
    assert page.locator(LINES).count() == 6
    page.locator(TOKENS).first.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    expect(page.locator(READOUT)).to_contain_text("e ← a 0.9")
    page.locator("#pick-names").select_option("the token read")
    expect(page.locator(TOKENS).first).to_have_text("<s>")


def test_every_head_has_a_thumbnail_that_opens_it(visit: Visit) -> None:
    page = visit.open("attention")
    look(page, "a b c")
    expect(page.locator("#attention-text")).to_have_text("Translation: A B C")
    page.get_by_label("All heads").check()
    expect(page.locator(f"{VIEW} button")).to_have_count(2 * 2)
    page.locator("#pick-kind").select_option("encoder")
    expect(page.locator(f"{VIEW} button")).to_have_count(3 * 2)
    page.get_by_role("button", name="Layer 2, head 1").press("Enter")
    expect(page.get_by_label("Lines")).to_be_checked()
    assert (
        page.locator("#pick-layer").input_value(),
        page.locator("#pick-head").input_value(),
    ) == ("2", "1")
    expect(page.locator(f"{VIEW} > svg")).to_have_attribute(
        "aria-label",
        "encoder attention of layer 2, head 1: a line "
        "from each token at the left to those at the right that it looks at. Arrow keys go through the tokens.",
    )


def expect_cell(page: Page, name: str, weight: float) -> None:
    expect(page.locator(READOUT)).to_contain_text(f"{name}: ")
    shown = float(page.locator(READOUT).inner_text().rsplit(": ", 1)[1])
    assert shown == pytest.approx(weight, abs=1e-3)  # the page shows three digits, the API gives four


def test_the_matrix_is_read_by_pointer_and_by_keys_and_agrees_with_the_api(visit: Visit, stage: Stage) -> None:
    page = visit.open("attention")
    look(page, "a b c", "c b a")
    page.get_by_label("Matrix").check()
    for side in ("row", "column"):
        expect(page.locator(f"{VIEW} text.{side}-name").first).to_be_visible()
    page.locator("#pick-head").select_option("1")
    page.locator("#pick-layer").select_option("0")
    fields = {"q": "a b c", "source": "en", "target": "de", "target_text": "c b a", "kind": "cross"}
    answer: dict[str, Any] = stage.running.client.post("/attention", json=fields).json()
    weights = answer["maps"]["cross"]["weights"][0][1]
    matrix = page.get_by_role("application")
    matrix.focus()
    expect_cell(page, "<s> (writes c) → <2de>", weights[0][0])
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft", "ArrowLeft"):
        matrix.press(key)
    expect_cell(page, "c (writes b) → <2de>", weights[1][0])
    cells = page.locator(f"{VIEW} .cells").bounding_box()
    assert cells is not None
    width, height = cells["width"] / len(weights[0]), cells["height"] / len(weights)
    page.mouse.move(cells["x"] + 2.5 * width, cells["y"] + 3.5 * height)
    expect_cell(page, "a (writes </s>) → b", weights[3][2])


def test_pairs_and_prompts_have_their_own_fields(visit: Visit) -> None:
    page = visit.open("attention")
    model = page.locator("#attention-form [name=model]")
    assert model.locator("option").all_text_contents() == ["en-de (translate)", "mini (embed)", "story (generate)"]
    model.select_option("mini")
    expect(page.locator("#attention-form [name=target]")).to_be_hidden()
    look(page, "a b")
    expect(page.locator(TOKENS)).to_have_text(["<s>", "a", "b", "</s>"] * 2)
    expect(page.locator("#pick-kind")).to_be_hidden()
    model.select_option("story")
    expect(page.locator("#attention-form [name=second]")).to_be_hidden()
    page.locator("#attention-form [name=text]").fill("a b")
    page.locator("#attention-form [name=max_new_tokens]").fill("2")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("#attention-text")).to_contain_text("Continuation: ")
    expect(page.locator(TOKENS).first).to_have_text("<s>")


@pytest.mark.parametrize("kind", ["png", "svg", "json", "html"])
def test_what_is_shown_can_be_kept(visit: Visit, tmp_path: Path, kind: str) -> None:
    page = visit.open("attention")
    look(page, "a b c")
    expect(page.locator("#attention-text")).to_have_text("Translation: A B C")
    page.locator("#pick-head").select_option("1")
    with page.expect_download() as download:
        page.get_by_role("button", name=kind.upper()).click()
    assert download.value.suggested_filename == f"attention.{kind}"
    path = tmp_path / "kept"
    download.value.save_as(path)
    content = path.read_bytes()
    start = {"png": b"\x89PNG", "svg": b"<?xml", "json": b"{", "html": b"<!doctype html>"}[kind]
    assert content.lstrip().startswith(start)
    if kind == "json":
        maps = json.loads(content)["maps"]["cross"]
        assert (maps["layers"], maps["heads"]) == ([1], [1])


def test_errors_mark_the_field_that_they_name(browser: Browser) -> None:
    with staged(max_attention_values=100) as stage, visiting(browser, stage.url) as visit:
        visit.expected_statuses = {400, 422}
        page = visit.open("attention")
        error = page.locator("#attention-error")
        expect(error).to_contain_text("allowed: 100")
        page.locator("#attention-form [name=model]").select_option("story")
        page.locator("#attention-form [name=max_new_tokens]").fill("70")
        page.get_by_role("button", name="Look").click()
        expect(error).to_contain_text("`max_new_tokens` is 70")
        field = page.locator("#attention-form [name=max_new_tokens]")
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_attribute("aria-describedby", "attention-error")
        expect(page.locator("#attention-result")).to_be_hidden()
