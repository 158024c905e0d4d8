from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn

from service.app import create_app
from service.engine.observer import Observer
from service.models import LoadedModel, ModelRegistry
from service.settings import Settings
from tests.service.fakes import FakeEngine, fake_model, tiny_tokenizer

Serve = Callable[..., "Running"]


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
def running(models: Callable[[FakeEngine], list[LoadedModel]] | None = None, **settings: Any) -> Iterator[Running]:
    engines: list[FakeEngine] = []

    def load(settings: Settings, observer: Callable[[str], Observer]) -> ModelRegistry:
        engine = FakeEngine(tiny_tokenizer(), observer("en-de"))
        engines.append(engine)
        return ModelRegistry(models(engine) if models else [fake_model(engine)])

    app = create_app(Settings(**settings), load_models=load)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=5))
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
