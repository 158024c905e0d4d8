"""The models can change while requests run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI

from service.http.context import current_context, swap_registry
from service.models.registry import ModelRegistry
from tests.service.conftest import Serve, wait_until
from tests.service.fakes import FakeEngine, fake_model, tiny_tokenizer


def test_a_request_keeps_the_models_that_it_began_with(serve: Serve) -> None:
    served = serve()
    app = served.server.config.app
    assert isinstance(app, FastAPI)
    before = current_context(app).registry
    other = fake_model(FakeEngine(tiny_tokenizer()), name="en-fr", directions=[("en", "fr")])
    served.engine.hold()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(served.translate)
        wait_until(lambda: served.engine.num_running == 1)
        swap_registry(app, ModelRegistry([other]))
        assert served.translate(target="fr").json() == {"translatedText": "HELLO."}
        assert served.translate().json()["error"] == "de is not supported"
        assert [model["name"] for model in served.client.get("/info").json()["models"]] == ["en-fr"]
        assert served.client.get("/health?details=1").json()["models"] == {"en-fr": "ok"}
        assert 'model="en-fr"' in served.client.get("/metrics").text
        served.engine.release()
        assert running.result().json() == {"translatedText": "HELLO."}
    swap_registry(app, before)
