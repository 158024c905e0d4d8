from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn

from service.app import create_app
from service.engine.core.observer import Observer
from service.models.base import LoadedModel
from service.models.registry import ModelRegistry
from service.operations.metrics import Metrics
from service.server import make_config
from service.settings import Settings
from tests.service.embed_fakes import FakeEmbeddingEngine, fake_embedder
from tests.service.fakes import FakeEngine, fake_model, tiny_tokenizer

Serve = Callable[..., "Running"]
ServeEmbedder = Callable[..., "RunningEmbedder"]


@dataclass
class Running:
    """A server on a free port of this machine, its engine, and a client for it."""

    url: str
    engine: FakeEngine
    client: httpx.Client
    server: uvicorn.Server

    def translate(self, **fields: Any) -> httpx.Response:
        return self.client.post("/translate", json={"q": "Hello.", "source": "en", "target": "de"} | fields)


@contextmanager
def running(models: Callable[[FakeEngine], Sequence[LoadedModel]] | None = None, **settings: Any) -> Iterator[Running]:
    engines: list[FakeEngine] = []

    def load(settings: Settings, observer: Callable[[str], Observer]) -> ModelRegistry:
        engine = FakeEngine(tiny_tokenizer(), observer("en-de"))
        engines.append(engine)
        return ModelRegistry(models(engine) if models else [fake_model(engine)], settings.aliases)

    metrics, chosen = Metrics(), Settings(**({"port": 0, "drain_timeout_seconds": 5} | settings))
    app = create_app(chosen, load_models=load, metrics=metrics)
    server = uvicorn.Server(make_config(app, chosen, metrics))
    started = threading.Event()
    listen = server.startup

    async def startup(**arguments: Any) -> None:
        await listen(**arguments)
        started.set()

    server.startup = startup  # type: ignore[method-assign, assignment]  # the server tells nobody else when it listens
    thread = threading.Thread(target=server.run)
    thread.start()
    assert started.wait(10)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            yield Running(f"http://127.0.0.1:{port}", engines[0], client, server)
    finally:
        engines[0].release()
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    """For what happens on the server's thread after a client has its answer."""
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """One server with the default settings for a whole module; tests leave its engine as they found it."""
    with running() as served:
        yield served


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers with settings of a test's own."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(running(**settings))


@dataclass
class RunningEmbedder:
    """A server with a model for embeddings and a client for it."""

    url: str
    engine: FakeEmbeddingEngine
    client: httpx.Client

    def embed(self, inputs: Any, path: str = "/embed", **fields: Any) -> httpx.Response:
        return self.client.post(path, json={"inputs": inputs} | fields)

    def openai(self, value: Any, **fields: Any) -> httpx.Response:
        return self.client.post("/v1/embeddings", json={"input": value} | fields)


@contextmanager
def running_embedder(
    models: Callable[[FakeEmbeddingEngine], Sequence[LoadedModel]] | None = None, **settings: Any
) -> Iterator[RunningEmbedder]:
    engine = FakeEmbeddingEngine()

    def both(translator: FakeEngine) -> Sequence[LoadedModel]:
        return models(engine) if models else [fake_model(translator), fake_embedder(engine)]

    with running(both, **settings) as served:
        try:
            yield RunningEmbedder(served.url, engine, served.client)
        finally:
            engine.release()


@pytest.fixture(scope="module")
def embedder() -> Iterator[RunningEmbedder]:
    """One server with a translator and an embedder for a whole module; tests leave its engine as they found it."""
    with running_embedder() as served:
        yield served


@pytest.fixture
def serve_embedder() -> Iterator[ServeEmbedder]:
    """Starts such servers with settings of a test's own."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(running_embedder(**settings))
