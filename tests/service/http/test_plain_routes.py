"""The busiest routes, which bypass FastAPI and must still be documented, counted and refused like the others."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from service.app import create_app
from service.http.plain import PlainRoute, PlainRoutesMiddleware, plain_routes
from service.settings import Settings
from tests.service.fakes import loader_of

PLAIN_PATHS = {
    "/embed",
    "/embed_all",
    "/v1/embeddings",
    "/embeddings",
    "/similarity",
    "/translate",
    "/v2/translate",
    "/languages",
}


async def plain(request: Request) -> Response:
    return Response(str(request.scope["route"].path))


async def guard() -> None:
    raise AssertionError("nobody calls it")


def plain_router() -> APIRouter:
    router = APIRouter(route_class=PlainRoute)
    router.add_api_route("/plain", plain, methods=["POST"], response_class=Response)
    return router


def test_the_busiest_routes_are_plain() -> None:
    app = create_app(Settings(), loader_of())
    assert {path for path, _ in plain_routes(app.routes)} == PLAIN_PATHS | {"/", "/invocations", "/vertex"}


def test_a_plain_route_is_found_below_its_prefix() -> None:
    outer, app = APIRouter(prefix="/b"), FastAPI()
    outer.include_router(plain_router())
    app.include_router(outer, prefix="/a")
    assert [path for path, _ in plain_routes(app.routes)] == ["/a/b/plain"]


def test_a_dependency_that_would_not_run_is_refused() -> None:
    dependencies = [Depends(guard)]
    with pytest.raises(TypeError, match="/plain is a plain route, which runs no dependencies: call guard"):
        plain_router().add_api_route("/plain", plain, response_class=Response, dependencies=dependencies)
    with pytest.raises(TypeError, match="call guard in its function"):
        APIRouter(route_class=PlainRoute, dependencies=dependencies).add_api_route(
            "/plain", plain, response_class=Response
        )
    including, guarded = FastAPI(), FastAPI(dependencies=dependencies)
    including.include_router(plain_router(), dependencies=dependencies)
    guarded.include_router(plain_router())
    for app in (including, guarded):
        with pytest.raises(TypeError, match="call guard in its function"):
            list(plain_routes(app.routes))


def test_what_fastapi_would_have_to_do_is_refused() -> None:
    async def takes_more(request: Request, name: str) -> Response:
        return Response(name)

    async def answers_json(request: Request) -> dict[str, Any]:
        return {}

    router = APIRouter(route_class=PlainRoute)
    with pytest.raises(TypeError, match="takes request alone, not request, name"):
        router.add_api_route("/more", takes_more, response_class=Response)
    with pytest.raises(TypeError, match="give it response_class=Response"):
        router.add_api_route("/json", answers_json)


def test_other_methods_and_paths_are_left_to_the_application() -> None:
    middleware = Middleware(PlainRoutesMiddleware, routes=plain_router().routes)
    with TestClient(Starlette(middleware=[middleware])) as client:
        assert client.post("/plain?a=1").text == "/plain"
        assert client.get("/plain").status_code == 404  # the application has no routes at all
        assert client.post("/plain/").status_code == 404
