"""The busy routes, which bypass FastAPI and must still be documented, counted and refused like the others."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from service.app import ROUTERS
from service.routes.plain import plain_routes


def paths(routes: list[BaseRoute]) -> set[str]:
    return {getattr(route, "path", "") for route in routes}


def test_what_is_called_all_day_is_plain() -> None:
    assert paths([*plain_routes(ROUTERS)]) == {"/embed", "/embed_all", "/v1/embeddings", "/translate"}


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

    routes = plain_routes([router])
    assert paths([*routes]) == {"/plain"}
    with TestClient(Starlette(routes=routes)) as client:
        assert client.post("/plain").text == "/plain"
        assert client.get("/plain").status_code == 405
