"""Keys and rates, on every route that looks at a key."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import httpx
import pytest
from fastapi.routing import APIRoute

from service.app import ROUTERS
from service.engine.core.flow import current_flow
from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from tests.service.conftest import RunningEmbedder, Serve, ServeEmbedder

KEYED = {"q": "Hello.", "source": "en", "target": "de"}
OPEN_PATHS = {
    "/",
    "/docs",
    "/health",
    "/ping",
    "/info",
    "/metrics",
    "/openapi.json",
    "/languages",
    "/frontend/settings",
    "/spec",
}
ROUTES = sorted(
    (method, route.path)
    for router, _ in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods or ()
    if (method == "POST" or route.path not in OPEN_PATHS) and not route.path.startswith("/download_file/")
)


def guess(client: httpx.Client, method: str, path: str, **options: object) -> httpx.Response:
    body = {} if method == "GET" else {"json": KEYED}
    return client.request(method, path.replace("{model_id:path}", "mini"), **body, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_guesses_at_keys_count(serve_embedder: ServeEmbedder, method: str, path: str) -> None:
    served = serve_embedder(api_keys="one", requests_per_minute=3)
    headers = {"Authorization": "Bearer guess"}
    statuses = [guess(served.client, method, path, headers=headers).status_code for _ in range(4)]
    assert set(statuses[:3]) <= {401, 403}
    assert statuses[3] == 429


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_that_is_not_open_asks_for_the_key(serve_embedder: ServeEmbedder, method: str, path: str) -> None:
    served = serve_embedder(api_keys="one")
    assert guess(served.client, method, path).status_code in {400, 401, 403}
    assert guess(served.client, method, path, params={"api_key": "guess"}).status_code in {401, 403}


@pytest.mark.parametrize("path", ["/translate?api_key=guess", "/embed", "/v1/chat/completions"])
def test_the_key_is_looked_at_before_the_body_is_read(serve_embedder: ServeEmbedder, path: str) -> None:
    served = serve_embedder(api_keys="one")
    host, port = "127.0.0.1", int(served.url.rsplit(":", 1)[1])
    with socket.create_connection((host, port), timeout=5) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode())  # and nothing of the body
        status_line = connection.recv(65536).split(b"\r\n")[0]
    assert status_line.split()[1] in {b"401", b"403"}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_key_need_not_be_ascii(serve: Serve, encoding: str) -> None:
    served = serve(api_keys="schl\u00fcssel,\u9375")
    headers = {b"Authorization": b"Bearer " + "schl\u00fcssel".encode(encoding)}
    assert served.client.post("/translate", json=KEYED, headers=headers).status_code == 200
    headers = {b"Authorization": "Bearer \u9375".encode()}
    assert served.client.post("/translate", json=KEYED, headers=headers).status_code == 200
    assert served.client.post("/translate", json=KEYED, headers={b"Authorization": b"Bearer ?"}).status_code == 403
    assert served.client.post("/translate", json=KEYED, params={"api_key": "\u9375"}).status_code == 200


def test_a_right_key_in_the_query_string_needs_none_in_the_body(serve_embedder: ServeEmbedder) -> None:
    served: RunningEmbedder = serve_embedder(api_keys="one")
    assert served.client.post("/embed?api_key=one", json={"inputs": "a"}).status_code == 200


def flows(served: RunningEmbedder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clients for whom the engine is asked."""
    clients: list[str] = []
    run = served.engine.run

    async def note(requests: Sequence[EmbeddingRequest]) -> list[EmbeddingResult]:
        clients.append(current_flow().client)
        return await run(requests)

    monkeypatch.setattr(served.engine, "run", note)
    return clients


def test_a_client_is_its_address(serve_embedder: ServeEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_embedder()
    clients = flows(served, monkeypatch)
    for _ in range(2):
        assert served.client.post("/embed", json={"inputs": "Hello."}).status_code == 200
    assert clients == ["127.0.0.1"] * 2


def test_a_client_is_its_key(serve_embedder: ServeEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_embedder(api_keys="one,two")
    clients = flows(served, monkeypatch)
    for key in ("one", "two"):
        headers = {"Authorization": f"Bearer {key}"}
        assert served.client.post("/embed", json={"inputs": "Hello."}, headers=headers).status_code == 200
    assert served.client.post("/embed?api_key=two", json={"inputs": "Hello."}).status_code == 200
    assert clients == ["one", "two", "two"]
