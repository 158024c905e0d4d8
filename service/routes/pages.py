"""The pages for people: GET / and GET /docs. Neither needs anything from another host."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import fastapi_offline
from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

router = APIRouter(include_in_schema=False)

_STATIC = Path(str(resources.files("service"))) / "static"
# The package carries Swagger UI's files; its own factory would add routes and a ReDoc page that we do not want.
_SWAGGER_UI = Path(fastapi_offline.__file__).parent / "static"


def asset_mounts() -> list[BaseRoute]:
    """Where the pages' scripts and styles are served from."""
    return [
        Mount("/static", StaticFiles(directory=_STATIC), name="static"),
        Mount("/docs/assets", StaticFiles(directory=_SWAGGER_UI), name="docs_assets"),
    ]


@router.get("/")
async def index() -> FileResponse:
    """A page to translate with."""
    return FileResponse(_STATIC / "index.html")


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
