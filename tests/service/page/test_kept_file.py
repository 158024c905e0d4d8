"""The HTML that POST /attention answers with, kept as a file: it opens from disk and needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.service.page.conftest import DESKTOP, PHONE, Stage, Visit, visiting
from tests.service.page.legibility import expect_legible

FIELDS: dict[str, Any] = {
    "q": "a b c",
    "source": "en",
    "target": "de",
    "target_text": "c b a",
    "kind": "all",
    "norms": True,
    "alignment": True,
}
LINES = "#lines line:not(.faded)"


@pytest.fixture(scope="module")
def answer(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = stage.running.client.post("/attention", json=FIELDS).json()
    return found


@pytest.fixture(scope="module")
def kept(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "attention.html"
    path.write_bytes(stage.running.client.post("/attention", json=FIELDS | {"format": "html"}).content)
    return path


@pytest.fixture
def visit(browser: Browser, kept: Path, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A window without a network that has the file open; whatever it asks for besides is a problem."""
    options = {"offline": True, "reduced_motion": "reduce"} | getattr(request, "param", {})
    with visiting(browser, kept.as_uri(), **options) as visit:
        visit.page.route("http*://**", lambda route: route.abort())
        visit.page.goto(visit.url)
        yield visit


def shown(page: Page) -> float:
    return float(page.locator("#readout").inner_text().rsplit(": ", 1)[1])


def test_every_map_can_be_picked_and_tells_the_numbers_of_the_api(visit: Visit, answer: dict[str, Any]) -> None:
    page = visit.page
    expect(page).to_have_title("Attention")
    expect(page.locator("#text")).to_have_text("c b a")
    page.get_by_label("View").select_option("matrix")
    for values, name in (("maps", "weights"), ("norms", "norms")):
        page.get_by_label("Values").select_option(name)
        for kind, maps in answer[values].items():
            page.locator("#kind").select_option(kind)
            for place, layer in enumerate(maps["layers"]):
                page.get_by_label("Layer").select_option(str(layer))
                for head in maps["heads"]:
                    page.get_by_label("Head").select_option(str(head))
                    page.locator("#cells").focus()
                    page.keyboard.press("ArrowDown")
                    page.keyboard.press("ArrowRight")
                    assert shown(page) == pytest.approx(maps["weights"][place][head][1][1], abs=2e-4)
                    page.keyboard.press("ArrowUp")
                    page.keyboard.press("ArrowLeft")
                    assert shown(page) == pytest.approx(maps["weights"][place][head][0][0], abs=2e-4)


def test_a_token_shows_its_lines_alone(visit: Visit, answer: dict[str, Any]) -> None:
    page = visit.page
    page.locator("#kind").select_option("cross")
    weights = answer["maps"]["cross"]["weights"][0][0]
    largest = max(map(max, weights))
    strong = [[weight >= 0.02 * largest for weight in row] for row in weights]
    expect(page.locator(LINES)).to_have_count(sum(map(sum, strong)))
    tokens = page.locator("#lines text")
    expect(tokens).to_have_text(["<s>", "c", "b", "a", "<2de>", "a", "b", "c", "</s>"])
    tokens.nth(1).hover()
    expect(page.locator(LINES)).to_have_count(sum(strong[1]))
    expect(page.locator("#readout")).to_contain_text("c (next: b) → ")
    tokens.nth(5).focus()
    expect(page.locator(LINES)).to_have_count(sum(row[1] for row in strong))


def test_the_matrix_is_painted_and_read_by_the_pointer(visit: Visit, answer: dict[str, Any]) -> None:
    page = visit.page
    page.locator("#kind").select_option("cross")
    page.get_by_label("View").select_option("matrix")
    colours = """canvas => {
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return new Set(new Uint32Array(data.buffer)).size;
    }"""
    assert page.locator("#cells").evaluate(colours) > 15
    page.locator("#cells").hover(position={"x": 120 + 28 * 2.5, "y": 120 + 28 * 3.5})
    expect(page.locator("#readout")).to_contain_text("a (next: </s>) → b: ")
    assert shown(page) == pytest.approx(answer["maps"]["cross"]["weights"][0][0][3][2], abs=2e-4)


def test_the_word_alignment_is_written_out(visit: Visit, answer: dict[str, Any]) -> None:
    words = [[word["text"] for word in answer["alignment"][f"{side}_words"]] for side in ("source", "target")]
    links = [link.split("-") for link in answer["alignment"]["links"].split()]
    expected = [f"{words[0][int(source)]} – {words[1][int(target)]}" for source, target in links]
    assert expected
    expect(visit.page.locator("#links li")).to_have_text(expected)


@pytest.mark.parametrize(
    "visit",
    [
        {"color_scheme": theme, "viewport": size}
        for theme, size in (("light", DESKTOP), ("dark", DESKTOP), ("dark", PHONE))
    ],
    ids=["light", "dark", "phone"],
    indirect=True,
)
def test_it_can_be_read_in_both_themes_and_fits_a_phone(visit: Visit) -> None:
    page = visit.page
    expect_legible(page, at_least=15)
    page.locator("#lines text").first.hover()
    expect_legible(page, at_least=15)
    assert visit.overflow() == 0
    page.get_by_label("View").select_option("matrix")
    assert visit.overflow() == 0
