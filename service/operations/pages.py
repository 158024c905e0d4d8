"""The web pages: GET / and GET /docs. Neither loads anything from another host."""

from __future__ import annotations

import asyncio
from functools import cache, lru_cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import fastapi_offline
import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from service.heads.head import Panel
from service.heads.registry import HEADS
from service.http.context import ContextDep

router = APIRouter(include_in_schema=False)

# A browser asks whether a file has changed each time: the modules of two releases do not go together.
_ALWAYS_ASK = {"Cache-Control": "no-cache"}
_STATIC = Path(str(resources.files("service"))) / "static"
# The package has Swagger UI's files; its own factory would add routes and a ReDoc page.
_SWAGGER_UI = Path(fastapi_offline.__file__).parent / "static"


_STATUS = Panel(name="status", title="Status", folder=Path(__file__).parent / "panel", place=9)
PANELS = sorted((*(head.panel for head in HEADS if head.panel is not None), _STATUS), key=lambda panel: panel.place)


class _PageFiles(StaticFiles):
    """The page's own files."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_ALWAYS_ASK)
        return response


def asset_mounts() -> list[BaseRoute]:
    """Where the pages' scripts and styles are served from."""
    return [
        *(
            Mount(f"/static/panels/{panel.name}", _PageFiles(directory=panel.folder), name=f"panel_{panel.name}")
            for panel in PANELS
        ),
        Mount("/static", _PageFiles(directory=_STATIC), name="static"),
        Mount("/docs/assets", StaticFiles(directory=_SWAGGER_UI), name="docs_assets"),
    ]


def page() -> HTMLResponse:
    """The page at /: a panel for each head, and one to see how the server does."""
    return HTMLResponse(_page(), headers=_ALWAYS_ASK)


@cache
def _page() -> str:
    """The frame with the tabs and panels of the heads; the first is shown until another is asked for."""
    tabs, sections = [], []
    for number, panel in enumerate(PANELS):
        tab_state = 'aria-selected="true"' if number == 0 else 'aria-selected="false" tabindex="-1"'
        tabs.append(
            f'  <button type="button" role="tab" id="tab-{panel.name}" aria-controls="panel-{panel.name}" {tab_state}>'
            f"{escape(panel.title)}</button>"
        )
        content = (panel.folder / "panel.html").read_text(encoding="utf-8")
        sections.append(
            f'<section role="tabpanel" id="panel-{panel.name}" aria-labelledby="tab-{panel.name}" '
            f'data-module="static/panels/{panel.name}/panel.js" inert{" hidden" if number else ""}>\n'
            f"{content}</section>"
        )
    frame = (_STATIC / "index.html").read_text(encoding="utf-8")
    return frame.replace("{{tabs}}", "\n".join(tabs)).replace("{{panels}}", "\n\n".join(sections))


@router.get("/spec", name="spec")  # where LibreTranslate has it
@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """The API, for programs."""
    return Response(await asyncio.to_thread(_openapi, request.app), media_type="application/json")


@lru_cache(maxsize=1)
def _openapi(app: FastAPI) -> bytes:
    """Written once: that takes ten times as long as most answers."""
    return orjson.dumps(app.openapi())


@router.get("/docs")
async def docs(request: Request, context: ContextDep) -> HTMLResponse:
    """The API, to read and to try."""
    root_path = context.settings.root_path

    def asset(path: str) -> str:
        return root_path + str(request.app.url_path_for("docs_assets", path=path))

    return get_swagger_ui_html(
        openapi_url=root_path + str(request.app.url_path_for("openapi")),
        title=f"{request.app.title} API",
        swagger_js_url=asset("swagger-ui-bundle.js"),
        swagger_css_url=asset("swagger-ui.css"),
        swagger_favicon_url=asset("favicon.png"),
    )
