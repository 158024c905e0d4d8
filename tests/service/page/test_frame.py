"""The page's frame: tabs, deep links, the theme, and what holds for every panel."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.service.conftest import running
from tests.service.page.conftest import PHONE, Stage, Visit, staged, visiting

ROOT = Path(__file__).resolve().parents[3]
IMPORT = re.compile(r'^import (?:[^"]*from )?"(\.{1,2}/[^"]+)"', re.MULTILINE)
PANELS = ("translate", "attention", "embed", "generate", "status")


def test_tabs_go_by_pointer_and_by_arrow_keys_and_have_links(visit: Visit) -> None:
    page = visit.open()
    tabs = page.get_by_role("tab")
    expect(page.get_by_role("tabpanel", name="Translate")).to_be_visible()
    tabs.nth(0).focus()
    page.keyboard.press("ArrowLeft")
    expect(tabs.nth(4)).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Status")).to_be_visible()
    assert page.url.endswith("#status")
    page.keyboard.press("ArrowRight")
    expect(tabs.nth(0)).to_have_attribute("aria-selected", "true")
    assert [tab.get_attribute("tabindex") or "0" for tab in tabs.all()] == ["0", "-1", "-1", "-1", "-1"]
    tabs.nth(2).click()
    expect(page).to_have_title("Embed · Polyhead")
    page.go_back()
    expect(page.get_by_role("tabpanel", name="Translate")).to_be_visible()


def test_the_skip_link_keeps_the_panel(visit: Visit) -> None:
    page = visit.open("generate")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#generate")


def test_the_theme_follows_the_system_until_one_is_chosen(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage.url, color_scheme="dark") as visit:
        page = visit.open()
        background = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(background) == "rgb(21, 24, 28)"
        page.get_by_label("Theme").select_option("Light")
        assert page.evaluate(background) == "rgb(255, 255, 255)"
        page.reload()
        assert page.evaluate(background) == "rgb(255, 255, 255)"


_RESULTS = {
    "translate": ("#output .word", "#panel-translate"),
    "attention": ("#attention-view svg", "#attention-form"),
    "embed": ("#map svg", "#embed-form"),
    "generate": (".token", "#generate-form"),
    "status": (".card", "#panel-status"),
}


@pytest.mark.parametrize("panel", PANELS)
def test_nothing_overflows_on_a_phone(browser: Browser, stage: Stage, panel: str) -> None:
    with visiting(browser, stage.url, viewport=PHONE) as visit:
        page = visit.open(panel)
        if panel == "translate":
            page.locator("#q").fill("a" * 200 + " b c d e")
        if panel == "generate":
            page.locator("#generate-form [name=inputs]").fill("a b")
            page.locator("#generate-form [name=max_new_tokens]").fill("9")
            page.get_by_role("button", name="Generate").click()
        expect(page.locator(_RESULTS[panel][0]).first).to_be_visible()
        assert visit.overflow() == 0
        if panel == "attention":
            for view in ("All heads", "Matrix"):
                page.get_by_label(view).check()
                assert visit.overflow() == 0


_FAULTS = """
() => {
  const faults = [];
  for (const field of document.querySelectorAll("input, select, textarea")) {
    if (!field.labels.length && !field.ariaLabel) faults.push(`no label: ${field.outerHTML}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`twice: ${id}`);
  for (const name of ["aria-controls", "aria-labelledby", "aria-describedby"]) {
    for (const node of document.querySelectorAll(`[${name}]`)) {
      if (!document.getElementById(node.getAttribute(name))) faults.push(`${name}: ${node.outerHTML.slice(0, 99)}`);
    }
  }
  return faults;
}
"""


def test_fields_have_labels_and_what_is_referred_to_is_there(visit: Visit) -> None:
    for panel in PANELS:
        page = visit.open(panel)
        if panel in ("attention", "embed", "status"):
            expect(page.locator(_RESULTS[panel][0]).first).to_be_visible()
        assert page.evaluate(_FAULTS) == []


def test_a_panel_without_a_model_says_so(browser: Browser) -> None:
    with running() as server, visiting(browser, server.url) as visit:
        for panel, words in (
            ("attention", "No model with attention maps is loaded"),
            ("embed", "No model that embeds is loaded"),
            ("generate", "No model that generates text is loaded"),
        ):
            page = visit.open(panel)
            expect(page.get_by_role("heading", name=words)).to_be_visible()
            expect(page.locator(f"#panel-{panel}")).to_contain_text("POLYHEAD_BUNDLES")
        page.get_by_role("link", name="Status").click()
        expect(page.get_by_role("heading", name="en-de")).to_be_visible()


def test_a_key_is_asked_for_where_one_is_needed(browser: Browser) -> None:
    with staged(api_keys="sesame") as stage, visiting(browser, stage.url) as visit:
        visit.expected_statuses = {400, 401, 403}
        page = visit.open("embed")
        expect(page.get_by_role("alert").filter(has_text="key")).to_be_visible()
        page.get_by_label("API key").fill("sesame")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#map svg")).to_be_visible()


def test_a_server_that_is_gone_is_named(browser: Browser) -> None:
    with running() as server, visiting(browser, server.url) as visit:
        page = visit.open()
        page.locator("#q").fill("where is the key?")
        expect(page.locator("#output")).to_have_text("WHERE IS THE KEY?")
        page.context.set_offline(True)
        page.get_by_role("button", name="Translate").click()
        expect(page.get_by_role("alert")).to_have_text("The server cannot be reached. Is it running?")
        visit.problems = [problem for problem in visit.problems if "ERR_INTERNET_DISCONNECTED" not in problem]


def test_files_are_asked_for_anew_so_that_releases_do_not_mix(stage: Stage) -> None:
    for path in ("/", "/static/css/frame.css", "/static/js/main.js", "/static/vendor/d3/LICENSE"):
        answer = stage.running.client.get(path, headers={"Accept": "text/html"})
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")


def test_every_panel_and_every_module_that_it_imports_is_served(stage: Stage) -> None:
    client = stage.running.client
    page = client.get("/", headers={"Accept": "text/html"}).text
    assert re.findall(r'id="tab-(\w+)"', page) == list(PANELS)
    waiting = ["/static/js/main.js", *(f"/{path}" for path in re.findall(r'data-module="([^"]+)"', page))]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        answer = client.get(path)
        assert (path, answer.status_code) == (path, 200)
        imported = {posixpath.join(posixpath.dirname(path), found) for found in IMPORT.findall(answer.text)}
        found = {posixpath.normpath(target) for target in imported}
        waiting += found - seen
        seen |= found
    files = {path.name for path in (ROOT / "service").rglob("*.js") if "page" not in path.parts} - {"theme.js"}
    assert {posixpath.basename(path) for path in seen} == files
