from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from service.models.base import LoadedModel
from tests.service.conftest import running, wait_until
from tests.service.fakes import FakeEngine, fake_model
from tests.service.generation_fakes import ScriptedEngine, fake_generator
from tests.service.generation_http import RunningGenerator

ServeGenerator = Callable[..., RunningGenerator]


@contextmanager
def running_generator(
    models: Callable[[ScriptedEngine], Sequence[LoadedModel]] | None = None, **settings: Any
) -> Iterator[RunningGenerator]:
    engine = ScriptedEngine()

    def both(translator: FakeEngine) -> Sequence[LoadedModel]:
        return models(engine) if models else [fake_model(translator), fake_generator(engine)]

    with running(both, **settings) as served:
        try:
            yield RunningGenerator(served.url, engine, served.client)
        finally:
            engine.release()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningGenerator]:
    """One server with a translator and a generator for a whole module."""
    with running_generator() as served:
        yield served


@pytest.fixture
def generator(server: RunningGenerator) -> Iterator[RunningGenerator]:
    """The same, with an engine as good as new; no test leaves a stream open."""
    vars(server.engine).update(vars(ScriptedEngine()))
    yield server
    server.engine.release()
    wait_until(lambda: server.engine.num_running == 0)


@pytest.fixture
def serve_generator() -> Iterator[ServeGenerator]:
    """Starts such servers with settings of a test's own."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(running_generator(**settings))
