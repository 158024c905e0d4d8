"""The busy routes, which bypass FastAPI and must still be documented, counted and refused like the others."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from service.app import ROUTERS
from service.routes.plain import PlainRoutesMiddleware, plain_routes


def paths(routes: list[APIRoute]) -> set[str]:
    return {route.path for route in routes}


def test_what_is_called_all_day_is_plain() -> None:
    assert paths(plain_routes(ROUTERS)) == {"/embed", "/embed_all", "/v1/embeddings", "/translate"}


def test_only_routes_that_leave_nothing_to_fastapi_are_plain() -> None:
    router = APIRouter()

    @router.post("/plain", response_class=Response)
    async def plain(request: Request) -> Response:
        return Response(str(request.scope["route"].path))

    @router.post("/answers-json")
    async def answers_json(request: Request) -> dict[str, str]:
        return {}

    @router.post("/takes-more", response_class=Response)
    async def takes_more(request: Request, name: str) -> Response:
        return Response(name)

    @router.post("/depends", response_class=Response, dependencies=[Depends(lambda: None)])
    async def depends(request: Request) -> Response:
        return Response()

    assert paths(plain_routes([router])) == {"/plain"}


def test_other_methods_and_paths_are_left_to_the_application() -> None:
    router = APIRouter()

    @router.post("/plain", response_class=Response)
    async def plain(request: Request) -> Response:
        return Response(str(request.scope["route"].path))

    with TestClient(Starlette(middleware=[Middleware(PlainRoutesMiddleware, routers=[router])])) as client:
        assert client.post("/plain?a=1").text == "/plain"
        assert client.get("/plain").status_code == 404  # the application has no routes at all
        assert client.post("/plain/").status_code == 404
