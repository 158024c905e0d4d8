"""A request's time begins when it comes, not when its body is there: a client that sends slowly has less left."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any

from tests.service.attention_fakes import FakeAttentionEngine, support
from tests.service.conftest import running
from tests.service.embed_fakes import FakeEmbeddingEngine, fake_embedder
from tests.service.fakes import FakeEngine, StandIn, fake_model
from tests.service.generation_fakes import ScriptedEngine, fake_generator

TRANSLATE = {"q": "a", "source": "en", "target": "de"}
CHAT = [{"role": "user", "content": "a"}]
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "/translate": ("translator", TRANSLATE),
    "/generate": ("generator", {"inputs": "a"}),
    "/v1/completions": ("generator", {"model": "story", "prompt": "a"}),
    "/v1/chat/completions": ("generator", {"model": "story", "messages": CHAT}),
    "/embed": ("embedder", {"inputs": "a"}),
    "/v1/embeddings": ("embedder", {"input": "a"}),
    "/attention": ("attention", {"inputs": "a"}),
}
FORM = b"""--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n"""
FILE = b"""--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\na\r\n--x--\r\n"""
SECONDS = 100.0


def test_the_time_of_a_request_begins_before_its_body_is_there() -> None:
    embedder, generator, attention = FakeEmbeddingEngine(), ScriptedEngine(), FakeAttentionEngine("encoder")
    engines: dict[str, StandIn[Any, Any] | ScriptedEngine] = {
        "embedder": embedder,
        "generator": generator,
        "attention": attention,
    }

    def models(translator: FakeEngine) -> list[Any]:
        engines["translator"] = translator
        shown = replace(fake_embedder(embedder), companions=(support(attention),))
        return [fake_model(translator), fake_generator(generator), shown]

    requests = [(path, name, "application/json", json.dumps(body).encode()) for path, (name, body) in BODIES.items()]
    form = b"".join(FORM % pair for pair in ((b"source", b"en"), (b"target", b"de"))) + FILE
    requests.append(("/translate_file", "translator", "multipart/form-data; boundary=x", form))
    with running(models, request_timeout_seconds=SECONDS) as served:
        port = int(served.url.rsplit(":", 1)[1])
        for path, name, content_type, body in requests:
            connection = HTTPConnection("127.0.0.1", port, timeout=60)
            connection.putrequest("POST", path)
            connection.putheader("Content-Type", content_type)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            time.sleep(0.5)
            body_sent = time.monotonic()
            connection.send(body)
            response = connection.getresponse()
            assert response.status == 200, (path, response.read())
            connection.close()
            deadline = engines[name].requests[-1].deadline
            assert deadline is not None
            assert body_sent < deadline < body_sent + SECONDS, path
