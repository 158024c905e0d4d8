"""The page on the models that ship with the repository: each of their panels does its job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service.engine.core.observer import NullObserver
from service.heads.registry import load_models
from service.settings import Settings
from tests.service.conftest import Running, running
from tests.service.page.conftest import Visit, visiting

BUNDLES = Path(__file__).resolve().parents[3] / "bundles"
TASKS = sorted(
    {task for path in BUNDLES.glob("*/manifest.json") for task in json.loads(path.read_text(encoding="utf-8"))["heads"]}
)


STOP_AT_THE_FOURTH_TOKEN = """() => new MutationObserver((_, observer) => {
  if (document.querySelectorAll("#generated .token").length < 4) return;
  observer.disconnect();
  document.querySelector("#stop").click();
}).observe(document.querySelector("#generated"), {childList: true, subtree: true})"""
"""Within the page: the small model writes its 200 tokens in less time than a click from outside may take."""


@pytest.fixture(scope="module")
def shipped() -> Iterator[Running]:
    models = load_models(Settings(bundles=BUNDLES, loops=1), lambda _: NullObserver()).models
    with running(lambda _: models) as server:
        yield server


@pytest.fixture
def visit(browser: Browser, shipped: Running) -> Iterator[Visit]:
    with visiting(browser, shipped.url) as visit:
        yield visit


def _translate(page: Page) -> None:
    page.locator("#q").fill("The house is very old.")
    expect(page.locator("#output")).to_contain_text("Das Haus ist sehr alt.", timeout=30_000)
    page.locator("#output .word", has_text="Haus").hover()
    expect(page.locator("#backdrop mark").first).to_have_text("house", timeout=30_000)


def _embed(page: Page) -> None:
    expect(page.locator("#map circle")).to_have_count(8, timeout=30_000)
    page.locator("#map circle").first.focus()
    expect(page.locator("#map-readout")).to_have_text(
        "“The train leaves at nine o'clock.”, nearest on the map: “Der Zug fährt um neun Uhr ab.”"
    )


def _generate(page: Page) -> None:
    page.locator("#generate-form [name=max_new_tokens]").fill("8")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#generate-status")).to_contain_text("8 tokens", timeout=30_000)
    expect(page.locator("#generated .token")).to_have_count(8)
    page.locator("#generated .token").nth(2).hover()
    expect(page.locator("#token-readout")).to_contain_text("%; likeliest: ")
    page.locator("#generate-form [name=max_new_tokens]").fill("200")
    page.evaluate(STOP_AT_THE_FOURTH_TOKEN)
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#generate-status")).to_contain_text("stopped", timeout=30_000)


@pytest.mark.parametrize("task", TASKS)
def test_the_panel_of_each_shipped_model_does_its_job(visit: Visit, task: str) -> None:
    {"translate": _translate, "embed": _embed, "generate": _generate}[task](visit.open(task))


@pytest.mark.parametrize("task", TASKS)
def test_the_attention_of_each_shipped_model_is_shown(visit: Visit, task: str) -> None:
    page = visit.open("attention")
    model = page.locator("#attention-form [name=model]")
    name = next(label for label in model.locator("option").all_text_contents() if label.endswith(f"({task})"))
    model.select_option(name)
    page.get_by_role("button", name="Look").click()
    token = {"translate": "house", "embed": "dog", "generate": "time"}[task]
    expect(page.locator("#attention-view text.token", has_text=token).first).to_be_visible(timeout=30_000)
    expect(page.locator("#attention-view .line").first).to_be_attached()
