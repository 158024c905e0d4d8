"""What a head is: all that the rest of the server needs of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from service.http.context import Context
from service.http.error_handlers import ErrorProtocol
from service.http.schemas import WireModel
from service.models.base import Companion, LoadedModel
from service.models.common import Loading
from service.settings import Settings


class ModelInfo(WireModel):
    """What GET /info has for every loaded model."""

    name: str
    task: str
    device: str
    precision: str
    details: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TaskModels:
    """The models of one task: how they are loaded, and what GET /info says of them.

    `load` makes one of a bundle's section. `info_schema` describes what `info` adds to the fields of `ModelInfo`.
    `server_info` has TEI's fields of GET /info, which describe the first model of the first head that has one:
    `model_type`, `max_client_batch_size` and `auto_truncate`. With `one_loop`, all cores work on one step together.
    """

    kind: type[LoadedModel]
    load: Callable[[Loading], LoadedModel]
    info_schema: type[ModelInfo]
    info: Callable[[Any], Mapping[str, Any]]
    server_info: Callable[[Any, Settings], Mapping[str, Any]]
    one_loop: bool = False


@dataclass(frozen=True, kw_only=True)
class Companions:
    """What a head loads beside the models of other heads, and adds to what GET /info says of each.

    `load` gives None for a bundle that holds nothing for it.
    """

    load: Callable[[Loading], Companion | None]
    info_schema: type[WireModel]
    info: Callable[[LoadedModel], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel of the page at `/`: `panel.html` and `panel.js`, which exports `create(root, context)`, in `folder`.

    `name` is in its URL (`#name`) and before the ids of its elements; panels are in the order of `place`.
    """

    name: str
    title: str
    folder: Path
    place: int


@dataclass(frozen=True, kw_only=True)
class Head:
    """A head: its routes, what they need while the app lives, and the models that it brings.

    Each router goes with the protocol in which its errors are answered. `build` makes the objects of the routes, which
    find them by their class (`Context.of`), and frees them at the end. `upload_bytes` gives the longest body of each
    path that takes more than a request may have otherwise.
    """

    name: str
    routers: tuple[tuple[APIRouter, ErrorProtocol], ...]
    build: Callable[[Context], AbstractAsyncContextManager[tuple[object, ...]]]
    models: TaskModels | None = None
    companions: Companions | None = None
    panel: Panel | None = None
    upload_bytes: Callable[[Settings], Mapping[str, int]] = lambda settings: {}
