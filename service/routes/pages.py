"""The pages for people: GET / and GET /docs. Neither needs anything from another host."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

router = APIRouter(include_in_schema=False)

# A browser asks whether a file has changed each time: the modules of two releases do not go together.
_ALWAYS_ASK = {"Cache-Control": "no-cache"}
_STATIC = Path(str(resources.files("service"))) / "static"
# The package carries Swagger UI's files; its own factory would add routes and a ReDoc page that we do not want.
_SWAGGER_UI = Path(fastapi_offline.__file__).parent / "static"


class _PageFiles(StaticFiles):
    """The page's own files."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_ALWAYS_ASK)
        return response


def asset_mounts() -> list[BaseRoute]:
    """Where the pages' scripts and styles are served from."""
    return [
        Mount("/static", _PageFiles(directory=_STATIC), name="static"),
        Mount("/docs/assets", StaticFiles(directory=_SWAGGER_UI), name="docs_assets"),
    ]


@router.get("/")
async def index() -> FileResponse:
    """The page: translate, look at attention, embed, generate, and see how the server does."""
    return FileResponse(_STATIC / "index.html", headers=_ALWAYS_ASK)


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """The API, to read and to try."""

    def asset(path: str) -> str:
        return str(request.app.url_path_for("docs_assets", path=path))

    return get_swagger_ui_html(
        openapi_url=str(request.app.openapi_url),
        title=f"{request.app.title} API",
        swagger_js_url=asset("swagger-ui-bundle.js"),
        swagger_css_url=asset("swagger-ui.css"),
        swagger_favicon_url=asset("favicon.png"),
    )
