"""Letters stand out from what is behind them: on every panel, in both themes, also while something is pointed at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.service.page.conftest import Stage, Visit, visiting
from tests.service.page.legibility import expect_legible

pytestmark = pytest.mark.parametrize("theme", ["light", "dark"])


@pytest.fixture
def visit(browser: Browser, stage: Stage, theme: str) -> Iterator[Visit]:
    with visiting(browser, stage.url, color_scheme=theme, reduced_motion="reduce") as visit:
        yield visit


def test_words_that_light_up_can_be_read(visit: Visit, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.translator, "translate", lambda text: text)
    page = visit.open()
    page.locator("#translate-form [name=source]").select_option("English")
    stage.plant("a b c", num_words=3)
    page.locator("#q").fill("a b c")
    page.locator("#output .word").first.hover()
    expect(page.locator("#backdrop mark")).to_have_text("c")
    expect_legible(page, at_least=15)


def test_every_view_of_attention_can_be_read(visit: Visit) -> None:
    page = visit.open("attention")
    page.locator("#attention-view text.token").first.hover()
    expect_legible(page, at_least=40)
    for view, drawn in (("All heads", "canvas"), ("Matrix", "image.cells")):
        page.get_by_label(view).check()
        expect(page.locator(f"#attention-view {drawn}").first).to_be_visible()
        expect_legible(page, at_least=25)


def test_values_in_cells_of_every_colour_can_be_read(visit: Visit) -> None:
    page = visit.open("embed")
    # As many shades as there are cells: the fewer words two lines share, the farther they are apart.
    lines = [" ".join(["house", "key", "old", "where", "good", "a", "b", "c"][start:]) for start in range(8)]
    page.locator("#embed-form [name=inputs]").fill("\n".join(lines))
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#embed-status")).to_contain_text("8 texts")
    expect(page.locator("#cosine text.value")).to_have_count(64)
    expect_legible(page, at_least=64 + 2 * 8)


def test_tokens_of_every_probability_can_be_read(visit: Visit) -> None:
    page = visit.open("generate")
    page.locator("#generate-form [name=inputs]").fill("a b")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#generate-status")).to_contain_text("the model ended it")
    tokens = page.locator("#generated .token")
    tokens.first.hover()
    for place, probability in enumerate((0, 0.05, 0.5, 1)):
        tokens.nth(place).evaluate("(node, value) => node.style.setProperty('--probability', value)", probability)
    expect_legible(page, at_least=25)


def test_the_cards_of_status_can_be_read(visit: Visit) -> None:
    page = visit.open("status")
    expect(page.locator(".card")).to_have_count(3)
    expect_legible(page, at_least=50)
