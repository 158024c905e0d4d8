"""The busy routes once more, as plain Starlette routes that are tried first.

Their functions take nothing but the request and give a response, so that FastAPI has nothing to resolve, validate or
write for them, yet takes as long as the rest of the server to find that out. Its own routes stay for the documentation.
See docs/decisions/0062-plain-calls-on-busy-routes.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope


class PlainRoute(Route):
    """A route that leaves itself in the scope, as FastAPI's do, for those who count requests by route."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


def plain_routes(routers: Iterable[APIRouter]) -> list[Route]:
    """A plain route for each that can be one: no dependencies, no parameter but the request, and the answer is made."""
    return [
        PlainRoute(route.path, route.endpoint, methods=route.methods, include_in_schema=False)
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute) and _is_plain(route)
    ]


def _is_plain(route: APIRoute) -> bool:
    takes_request_only = list(inspect.signature(route.endpoint).parameters) == ["request"]
    return takes_request_only and not route.dependencies and route.response_class is Response
