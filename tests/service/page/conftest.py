from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect, sync_playwright

from service.heads.embed.model import EmbeddingModel
from service.heads.generate.model import GenerationModel
from service.heads.translate.model import TranslationModel
from service.models.base import LoadedModel
from tests.service.attention_fakes import FakeAttentionEngine, support
from tests.service.conftest import Running, running
from tests.service.embed_fakes import FakeEmbeddingEngine, fake_embedder
from tests.service.fakes import FakeEngine, fake_model, tiny_tokenizer
from tests.service.generation_fakes import ScriptedEngine, fake_generator

PHONE = {"width": 375, "height": 740}
PATIENCE_MILLISECONDS = 10_000
DESKTOP = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. For a module and no longer: Playwright's event loop stays in the thread as long as it runs."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("the page is tested with Chromium, and there is no `chromium` in PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page that is being looked at, and what went wrong on it."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    expected_statuses: set[int] = field(default_factory=set)
    """Errors that the test provokes; Chromium writes a line about each."""

    def listen(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", self._on_error)
        self.page.on("request", self._on_request)

    def open(self, panel: str = "") -> Page:
        """The page once one can work with it."""
        self.page.goto(f"{self.url}/{panel and '#' + panel}")
        expect(self.page.locator(f"#panel-{panel or 'translate'}")).not_to_have_attribute("inert", "")
        return self.page

    def _on_console(self, message: ConsoleMessage) -> None:
        status = re.search(r"responded with a status of (\d+)", message.text)
        if status is not None and int(status[1]) in self.expected_statuses:
            return
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _on_error(self, error: Error) -> None:
        self.problems.append(f"uncaught: {error.message}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", f"blob:{self.url}")):
            self.problems.append(f"a request leaves the server: {request.url}")

    def requests_to(self, path: str) -> list[Any]:
        """The JSON bodies of the requests to `path` from now on, None for one without; it grows."""
        bodies: list[Any] = []

        def note(request: Request) -> None:
            if request.url == f"{self.url}{path}":
                bodies.append(request.post_data_json if request.method == "POST" else None)

        self.page.on("request", note)
        return bodies

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        width = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert isinstance(width, int)
        return width


@contextmanager
def visiting(browser: Browser, url: str, **options: object) -> Iterator[Visit]:
    context = browser.new_context(**{"viewport": DESKTOP, "accept_downloads": True} | options)  # type: ignore[arg-type]
    try:
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        visit = Visit(context.new_page(), url)
        visit.listen()
        yield visit
        assert visit.problems == []
    finally:
        context.close()


@dataclass
class Stage:
    """A server with a model for each task, all of them stand-ins with attention, and their engines."""

    running: Running
    translator: FakeEngine
    looker: FakeAttentionEngine
    embedder: FakeEmbeddingEngine
    generator: ScriptedEngine

    @property
    def url(self) -> str:
        return self.running.url

    def plant(self, text: str, num_words: int) -> None:
        """For the next translation of `text` into itself, whose last words are a token each.

        The first of the last `num_words` looks at the last one, the second at the last but one; the rest at themselves.
        """
        num_tokens = len(tiny_tokenizer().encode(text))
        weights = np.full((num_tokens + 1, num_tokens + 2), 0.01, dtype=np.float32)
        for place in range(num_tokens):
            looked_at = place
            if place >= num_tokens - num_words:
                looked_at = 2 * num_tokens - num_words - 1 - place
            weights[place, looked_at + 1] = 1  # the row that chooses the token; the source has a tag before its tokens
        weights[num_tokens, 0] = 1
        self.looker.planted.append(weights / weights.sum(-1, keepdims=True))


@contextmanager
def staged(**settings: object) -> Iterator[Stage]:
    looker, embedder, generator = FakeAttentionEngine("encoder_decoder"), FakeEmbeddingEngine(), ScriptedEngine()

    def models(engine: FakeEngine) -> list[LoadedModel]:
        translator: TranslationModel = replace(fake_model(engine), companions=(support(looker),))
        reader: EmbeddingModel = replace(
            fake_embedder(embedder), companions=(support(FakeAttentionEngine("encoder"), num_token_types=2),)
        )
        writer: GenerationModel = replace(
            fake_generator(generator), companions=(support(FakeAttentionEngine("decoder"), vocab_size=420),)
        )
        return [translator, reader, writer]

    with running(models, **settings) as server:
        try:
            yield Stage(server, server.engine, looker, embedder, generator)
        finally:
            generator.release()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One such server for a module; tests leave its engines as they found them."""
    with staged() as served:
        yield served


@pytest.fixture
def visit(browser: Browser, stage: Stage) -> Iterator[Visit]:
    """A window on the stage, and afterwards the proof that nothing went wrong in it."""
    with visiting(browser, stage.url) as visit:
        yield visit
