"""What tells of the thing that is pointed at lies over nothing, has its own room, and fits a window with its view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.service.page.conftest import Stage, Visit, visiting

SIZES = {"desktop": {"width": 1100, "height": 760}, "phone": {"width": 390, "height": 844}}
TEXT = "where is the good old house key " * 4

_LAYOUT = """
async readout => {
  const rectOf = (node) => node.getBoundingClientRect();
  const others = [...readout.parentElement.children].filter((node) => node !== readout && rectOf(node).height);
  const isBelow = (node) => node.compareDocumentPosition(readout) & Node.DOCUMENT_POSITION_PRECEDING;
  const view = others.find(isBelow) ?? others.at(-1);
  const overlaps = [];
  for (const top of [0, 0.25, 0.5, 0.75, 1].map((share) => share * document.documentElement.scrollHeight)) {
    scrollTo(0, top);
    await new Promise(requestAnimationFrame);
    const own = rectOf(readout);
    for (const node of others) {
      const { top, bottom, left, right } = rectOf(node);
      if (Math.min(own.bottom, bottom) - Math.max(own.top, top) < 0.5) continue;
      if (Math.min(own.right, right) - Math.max(own.left, left) < 0.5) continue;
      overlaps.push(`${node.id || node.tagName} at ${scrollY}`);
    }
  }
  const places = [];
  const said = readout.textContent;
  for (const text of ["", said, "a word ".repeat(200)]) {
    readout.textContent = text;
    places.push(rectOf(view).top - rectOf(readout).top, rectOf(view).top + scrollY);
  }
  readout.textContent = said;
  const overflows = readout.scrollHeight > readout.clientHeight;
  return { overlaps, places, overflows, height: rectOf(view).bottom - rectOf(readout).top };
}
"""


@pytest.fixture(params=list(SIZES.values()), ids=list(SIZES))
def visit(browser: Browser, stage: Stage, request: pytest.FixtureRequest) -> Iterator[Visit]:
    with visiting(browser, stage.url, viewport=request.param) as visit:
        yield visit


def expect_room(page: Page, readout: str) -> None:
    """The readout overlaps nothing wherever the page is scrolled to, and moves nothing whatever it says."""
    layout: dict[str, Any] = page.locator(readout).evaluate(_LAYOUT)
    assert layout["overlaps"] == []
    assert not layout["overflows"]
    assert layout["places"] == pytest.approx(layout["places"][:2] * 3)
    assert page.viewport_size is not None
    assert layout["height"] <= page.viewport_size["height"]


def test_views_of_attention(visit: Visit) -> None:
    page = visit.open("attention")
    page.locator("#attention-form [name=text]").fill(TEXT)
    page.get_by_role("button", name="Look").click()
    expect(page.locator("#attention-text")).to_contain_text("WHERE IS THE")
    for view in ("Lines", "All heads", "Matrix"):
        page.get_by_label(view, exact=True).check()
        expect_room(page, "#attention-readout")


def test_cosines_and_map(visit: Visit) -> None:
    page = visit.open("embed")
    page.locator("#embed-form [name=inputs]").fill("\n".join(TEXT * count for count in range(1, 9)))
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#embed-status")).to_contain_text("8 texts")
    for readout, pointed_at in (("#cosine-readout", "#cosine svg"), ("#map-readout", "#map circle")):
        page.locator(pointed_at).first.focus()
        expect(page.locator(readout)).to_contain_text("“where is")
        expect_room(page, readout)


def test_generated_tokens(visit: Visit) -> None:
    page = visit.open("generate")
    page.locator("#generate-form [name=inputs]").fill("a b c\n" * 9)
    page.locator("#generate-form [name=max_new_tokens]").fill("20")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#generate-status")).to_contain_text("the model ended it")
    expect_room(page, "#token-readout")
    page.locator("#generated .token").first.focus()
    expect(page.locator("#token-readout")).to_contain_text("likeliest")
    expect_room(page, "#token-readout")


@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
def test_kept_file(browser: Browser, stage: Stage, tmp_path: Path, size: dict[str, int]) -> None:
    fields = {"q": TEXT, "source": "en", "target": "de", "kind": "all", "alignment": True, "format": "html"}
    kept = tmp_path / "attention.html"
    kept.write_bytes(stage.running.client.post("/attention", json=fields).content)
    with visiting(browser, kept.as_uri(), viewport=size) as visit:
        visit.page.goto(visit.url)
        for view in ("lines", "matrix"):
            visit.page.get_by_label("View").select_option(view)
            expect_room(visit.page, "#readout")
        visit.page.locator("#cells").focus()
        visit.page.keyboard.press("ArrowDown")
        expect(visit.page.locator("#readout")).to_contain_text(" → ")
        expect_room(visit.page, "#readout")
