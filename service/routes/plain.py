"""The busy routes, called before FastAPI sees the request.

Their functions take nothing but the request and give a response, so that FastAPI has nothing to resolve, validate or
write for them, yet takes as long as the rest of the server to find that out. Its own routes stay for the documentation.
See docs/decisions/0062-plain-calls-on-busy-routes.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class PlainRoutesMiddleware:
    """Calls a plain route by itself and leaves every other request to the application within.

    Innermost but for the handlers of errors: whatever the route raises is for the middleware around to answer. The
    route is left in the scope, as FastAPI does, for those who count requests by route.
    """

    def __init__(self, app: ASGIApp, routers: Iterable[APIRouter]) -> None:
        self.app = app
        self.routes = {(method, route.path): route for route in plain_routes(routers) for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self.routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        response: Response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)


def plain_routes(routers: Iterable[APIRouter]) -> list[APIRoute]:
    """Those that can be plain: no dependencies, no parameter but the request, and the answer is made."""
    return [route for router in routers for route in router.routes if isinstance(route, APIRoute) and _is_plain(route)]


def _is_plain(route: APIRoute) -> bool:
    takes_request_only = list(inspect.signature(route.endpoint).parameters) == ["request"]
    return takes_request_only and not route.dependencies and route.response_class is Response
