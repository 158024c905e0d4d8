"""Embed, Generate and Status."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, expect

from tests.service.generation_fakes import says
from tests.service.page.conftest import Stage, Visit, staged, visiting

LINES = ["a b c", "d e", "The house is old", "where is the key", "Good morning"]
TOKENS = "#generated .token"


def compare(page: Page, lines: list[str]) -> None:
    page.locator("#embed-form [name=inputs]").fill("\n\n".join(lines))
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#embed-status")).to_contain_text(f"{len(lines)} texts")


def test_lines_are_compared_and_mapped(visit: Visit, stage: Stage) -> None:
    page = visit.open("embed")
    page.locator("#embed-form [name=prompt_name]").select_option("query")
    compare(page, LINES)
    answer = stage.running.client.post("/embed", json={"inputs": LINES, "prompt_name": "query"})
    vectors = np.array(answer.json())
    cosines = [f"{value:.2f}" for value in (vectors @ vectors.T).ravel()]
    shown = page.locator("#cosine text.value").all_text_contents()
    assert [float(value) for value in shown] == pytest.approx([float(value) for value in cosines], abs=0.011)
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#cosine-readout")).to_contain_text("“a b c” and “d e”")

    places = page.locator("#map circle").evaluate_all(
        "all => all.map((one) => [one.cx.baseVal.value, one.cy.baseVal.value])"
    )
    centred = vectors - vectors.mean(axis=0)
    rows, values, _ = np.linalg.svd(centred)
    expected = rows[:, :2] * values[:2]
    np.testing.assert_allclose(_distances(np.array(places)), _distances(expected), atol=1e-3)
    shares = values**2 / (values**2).sum()
    expect(page.locator("#map")).to_contain_text(f"{100 * shares[0]:.0f} % and {100 * shares[1]:.0f} %")
    page.locator("#map circle").nth(2).focus()
    expect(page.locator("#map-readout")).to_contain_text("“The house is old”, nearest on the map: “")


def _distances(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of all pairs, with the largest as the unit: what neither the map's scale nor its mirror changes."""
    pairs: NDArray[np.float64] = np.linalg.norm(places[:, None] - places[None], axis=-1)
    largest: np.float64 = pairs.max()
    return pairs / largest


def test_one_line_and_equal_lines_have_no_map_to_get_lost_in(visit: Visit) -> None:
    page = visit.open("embed")
    compare(page, ["a b c"])
    expect(page.locator("#map")).to_have_text("A map needs two texts at least.")
    compare(page, ["a b c", "a b c"])
    expect(page.locator("#map circle")).to_have_count(2)
    expect(page.locator("#map")).to_contain_text("0 % and 0 %")


def test_many_lines_are_asked_for_in_batches_and_too_many_refused(visit: Visit) -> None:
    page = visit.open("embed")
    expect(page.locator("#map circle")).to_have_count(8)
    asked = visit.requests_to("/embed")
    compare(page, [f"a {number}" for number in range(40)])
    assert [len(body["inputs"]) for body in asked] == [32, 8]
    page.locator("#embed-form [name=inputs]").fill("a\n" * 201)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#embed-error")).to_have_text("There are 201 lines; at most 200 can be shown.")


def generate(page: Page, prompt: str = "a b", **fields: str) -> None:
    for name, value in {"inputs": prompt, "max_new_tokens": "20", **fields}.items():
        page.locator(f"#generate-form [name={name}]").fill(value)
    page.get_by_role("button", name="Generate").click()


def test_text_streams_with_the_probability_of_each_token(visit: Visit, stage: Stage) -> None:
    page = visit.open("generate")
    generate(page, seed="7", temperature="0.5", stop="zzz")
    expect(page.locator("#generate-status")).to_contain_text("the model ended it")
    expect(page.locator("#generated")).to_have_text("a b one two three</s>")
    tokens = page.locator(TOKENS)
    assert tokens.count() == len(says(" one two three")) + 1
    tokens.nth(0).hover()
    expect(page.locator("#token-readout")).to_contain_text(f"{100 * math.exp(-0.5):.1f} %; likeliest: ")
    tokens.nth(0).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#token-readout")).to_contain_text(f"{100 * math.exp(-1):.1f} %")
    request = stage.generator.requests[-1]
    assert (request.sampling.seed, request.sampling.temperature, request.options.max_new_tokens) == (7, 0.5, 20)


def test_a_temperature_of_0_takes_the_likeliest(visit: Visit, stage: Stage) -> None:
    page = visit.open("generate")
    generate(page, temperature="0", top_p="0.9")
    expect(page.locator("#generate-status")).to_contain_text("the model ended it")
    assert not stage.generator.requests[-1].sampling.do_sample


def test_stop_ends_the_work_and_keeps_the_text(browser: Browser) -> None:
    with staged() as stage, visiting(browser, stage.url) as visit:
        stage.generator.num_free = 2
        page = visit.open("generate")
        generate(page)
        expect(page.locator(TOKENS)).to_have_count(2)  # as they come, not at the end
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#generate-status")).to_contain_text("2 tokens")
        expect(page.locator("#generate-status")).to_contain_text("stopped")
        expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        expect(page.locator(TOKENS)).to_have_count(2)
        assert stage.generator.drain(5)  # the server has let go of it


def test_errors_of_generation_are_said_before_and_amid_the_text(browser: Browser) -> None:
    with staged() as stage, visiting(browser, stage.url) as visit:
        visit.expected_statuses = {422}
        page = visit.open("generate")
        generate(page, temperature="-1")
        error = page.locator("#generate-error")
        expect(error).to_contain_text("temperature parameter")
        expect(page.locator("#generate-form [name=temperature]")).to_have_attribute("aria-invalid", "true")
        page.locator("#generate-form [name=temperature]").fill("1")
        page.locator("#generate-form [name=top_k]").press_sequentially("1e")
        page.get_by_role("button", name="Generate").click()
        expect(error).to_have_text("`top_k` is not a number.")
        page.locator("#generate-form [name=top_k]").fill("")
        stage.generator.failure, stage.generator.fails_after = RuntimeError("broken"), 2
        generate(page, temperature="1")
        expect(error).to_have_text("Internal server error")
        expect(page.locator(TOKENS)).to_have_count(2)
        expect(page.locator("#generate-form [name=temperature]")).not_to_have_attribute("aria-invalid", "true")


def test_status_shows_what_is_loaded_and_what_it_does(browser: Browser) -> None:
    with staged() as stage, visiting(browser, stage.url) as visit:
        page = visit.open("status")
        card = page.locator(".card").first
        expect(page.locator(".card h2")).to_have_text(["en-de", "mini", "story"])
        expect(card).to_contain_text("cpu, fp32")
        expect(card).to_contain_text("Healthok")
        expect(card).to_contain_text("encoder, decoder, cross")
        expect(card).to_contain_text("0 of 64")
        expect(card).to_contain_text("0 tokens/s", timeout=10_000)
        stage.running.translate()
        expect(card).to_contain_text(re.compile(r"[1-9]\d* tokens/s"), timeout=10_000)
        expect(page.get_by_role("row", name="/translate")).to_contain_text("1")
        stage.translator.hold()
        with visiting(browser, stage.url) as other:
            other.open().locator("#q").fill("where is the key?")
            expect(card).to_contain_text("1 requests", timeout=10_000)
            stage.translator.release()


def test_status_rests_while_another_panel_is_shown(visit: Visit) -> None:
    page = visit.open("status")
    expect(page.locator(".card")).to_have_count(3)
    page.get_by_role("tab", name="Translate").click()
    asked = visit.requests_to("/metrics")
    page.wait_for_timeout(2500)  # longer than between two looks
    assert asked == []
