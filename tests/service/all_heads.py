"""A running server with a model of each task that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from service.models.base import LoadedModel
from tests.service.conftest import running
from tests.service.embed_fakes import FakeEmbeddingEngine, fake_embedder
from tests.service.fakes import FakeEngine, fake_model
from tests.service.generation_fakes import ScriptedEngine, fake_generator


@dataclass
class All:
    """A server with a model of each task."""

    url: str
    client: httpx.Client
    translator: FakeEngine

    def post(self, path: str = "/", **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)


def models_but(*without: str) -> Callable[[FakeEngine], list[LoadedModel]]:
    def models(translator: FakeEngine) -> list[LoadedModel]:
        found = [fake_model(translator), fake_embedder(FakeEmbeddingEngine()), fake_generator(ScriptedEngine())]
        return [model for model in found if model.task not in without]

    return models


@contextmanager
def running_all(*without: str, **settings: Any) -> Iterator[All]:
    with running(models_but(*without), **settings) as served:
        yield All(served.url, served.client, served.engine)
