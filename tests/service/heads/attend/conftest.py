from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from export.heads import Alignment
from service.models.base import LoadedModel
from tests.service.attention_fakes import FakeAttentionEngine, support
from tests.service.conftest import running
from tests.service.embed_fakes import FakeEmbeddingEngine, fake_embedder
from tests.service.fakes import FakeEngine, fake_model
from tests.service.generation_fakes import ScriptedEngine, fake_generator

ServeAttention = Callable[..., "RunningAttention"]

BOTH_WAYS = (("en", "de"), ("de", "en"))
MODELS = {"encoder_decoder": "en-de", "encoder": "mini", "decoder": "story"}
BASE: dict[str, dict[str, Any]] = {
    "encoder_decoder": {"q": "the house is old", "source": "en", "target": "de", "target_text": "a b c"},
    "encoder": {"inputs": "the house is old"},
    "decoder": {"prompt": "the house is old"},
}


@dataclass
class RunningAttention:
    """A server with a model of each architecture, and the engines that show their attention."""

    client: httpx.Client
    translator: FakeEngine
    generator: ScriptedEngine
    engines: dict[str, FakeAttentionEngine] = field(default_factory=dict)

    def ask(self, architecture: str = "encoder_decoder", *, accept: str | None = None, **fields: Any) -> httpx.Response:
        """One request on top of the `BASE` of an architecture, where None takes a field away."""
        body = {name: value for name, value in (BASE[architecture] | fields).items() if value is not None}
        headers = {} if accept is None else {"Accept": accept}
        return self.client.post("/attention", json=body, headers=headers)

    def error(self, architecture: str = "encoder_decoder", status: int = 422, **fields: Any) -> str:
        response = self.ask(architecture, **fields)
        assert response.status_code == status, response.text
        return str(response.json()["error"])


@contextmanager
def running_attention(
    alignment: Alignment | None = None, directions: Sequence[tuple[str, str]] = BOTH_WAYS, **settings: Any
) -> Iterator[RunningAttention]:
    engines = {architecture: FakeAttentionEngine(architecture) for architecture in MODELS}
    generator, supports = ScriptedEngine(), {name: support(engine) for name, engine in engines.items()}
    supports["encoder_decoder"] = support(engines["encoder_decoder"], alignment=alignment)

    def models(translator: FakeEngine) -> Sequence[LoadedModel]:
        return [
            replace(fake_model(translator, directions=directions), companions=(supports["encoder_decoder"],)),
            replace(fake_embedder(FakeEmbeddingEngine()), companions=(supports["encoder"],)),
            replace(fake_generator(generator), companions=(supports["decoder"],)),
            replace(fake_model(translator, name="blind", directions=[("en", "fr")])),
        ]

    with running(models, **settings) as served:
        served.client.timeout = httpx.Timeout(60)  # the first picture imports matplotlib
        try:
            yield RunningAttention(served.client, served.engine, generator, engines)
        finally:
            for engine in engines.values():
                engine.release()


@pytest.fixture(scope="module")
def attention() -> Iterator[RunningAttention]:
    """One server for a whole module; tests leave its engines as they found them."""
    with running_attention() as served:
        yield served


@pytest.fixture
def serve_attention() -> Iterator[ServeAttention]:
    """Starts such servers with settings of a test's own."""
    with ExitStack() as stack:
        yield lambda *arguments, **settings: stack.enter_context(running_attention(*arguments, **settings))
