"""The busiest routes, called before FastAPI sees the request.

Their functions take the request alone and give a response, so FastAPI has nothing to resolve, validate or write for
them, yet takes as long as the rest of the server to find that out. Its own routes stay for the documentation.
See docs/decisions/0062-plain-calls-on-busy-routes.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fastapi import Request, params
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send


class PlainRoute(APIRoute):
    """A route that FastAPI documents and does not call; choose it with `APIRouter(route_class=PlainRoute)`.

    Raises TypeError where FastAPI would have something to do: a dependency, of the route, its router or the app, which
    would silently not run; a parameter beside `request`; or an answer that is not a Response.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        _refuse(self.dependencies, path)
        if (parameters := list(inspect.signature(endpoint).parameters)) != ["request"]:
            raise TypeError(f"{path} is a plain route, which takes request alone, not {', '.join(parameters)}")
        if self.response_class is not Response:
            raise TypeError(f"{path} is a plain route: give it response_class=Response, and return one")


def plain_routes(routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[tuple[str, PlainRoute]]:
    """The plain ones among `routes` and those of included routers, each with its path.

    Raises TypeError where FastAPI(dependencies=...) or include_router(dependencies=...) would not run for one. One that
    is included in a way that is not known here is left to FastAPI, which calls it like any other.
    """
    for route in routes:
        if isinstance(route, PlainRoute):
            yield prefix + route.path, route
        elif (router := getattr(route, "original_router", None)) is not None:
            context = getattr(route, "include_context")  # noqa: B009  # FastAPI's own record, of a class without a name
            for path, found in plain_routes(router.routes, prefix + context.prefix):
                _refuse(context.dependencies, path)
                yield path, found


def _refuse(dependencies: Sequence[params.Depends], path: str) -> None:
    if dependencies:
        names = ", ".join(getattr(given.dependency, "__name__", "?") for given in dependencies)
        raise TypeError(f"{path} is a plain route, which runs no dependencies: call {names} in its function")


class PlainRoutesMiddleware:
    """Calls a plain route by itself and leaves every other request to the application within.

    Innermost but for the handlers of errors: whatever the route raises is for the middleware around to answer. The
    route is left in the scope, as FastAPI does, for those who count requests by route.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self.app = app
        self.routes = {(method, path): route for path, route in plain_routes(routes) for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self.routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        response: Response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)
