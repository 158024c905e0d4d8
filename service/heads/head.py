"""What a head is: all that the rest of the server needs of a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Request, Response

from service.http.context import Context
from service.http.error_handlers import ErrorProtocol
from service.http.records import RequestRecord
from service.http.request_parsing import RequestFields
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
    """The models of one task: how they are loaded, and what GET /info has for them.

    `load` makes one of a bundle's section. `info_schema` describes what `info` adds to the fields of `ModelInfo`.
    `server_info` has TEI's and TGI's fields of GET /info that depend on the task, for its first model; where two heads
    have one field, the first that has a model says it. With `one_loop`, all cores work on one step together.
    `token_lists` is how the protocol of these models answers /tokenize for one text: with a list of tokens in a list,
    as TEI, or with the list alone, as TGI; None where it has no such path.
    """

    kind: type[LoadedModel]
    load: Callable[[Loading], LoadedModel]
    info_schema: type[ModelInfo]
    info: Callable[[Any], Mapping[str, Any]]
    server_info: Callable[[Any, Settings], Mapping[str, Any]]
    one_loop: bool = False
    token_lists: Literal["nested", "flat"] | None = None


@dataclass(frozen=True, kw_only=True)
class Companions:
    """What a head loads beside the models of other heads, and adds to each in GET /info.

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


Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RootAnswer:
    """What a head answers at the paths that name no task: POST / and /invocations, and for each instance of /vertex.

    Clients of servers with one model post to the base URL itself, so the body says what they want. `claims` finds a
    body that only this can be meant by, `fits` one that this may be meant by. `task` is its name for
    `POLYHEAD_ROOT_TASK`, and None where `fits` never does. Errors are answered in `protocol`. One that `cuts_texts`
    takes texts of any length. `prediction` makes what /vertex gives of the answer's JSON.
    """

    task: str | None
    kind: type[LoadedModel]
    answer: Callable[[Request, RequestFields, Context, RequestRecord], Awaitable[Response]]
    protocol: ErrorProtocol
    claims: Callable[[Fields], bool]
    fits: Callable[[Fields], bool] = lambda fields: False
    cuts_texts: bool = False
    prediction: Callable[[Any], Any] = lambda answer: answer


@dataclass(frozen=True, kw_only=True)
class Head:
    """A head: its routes, what they need while the app lives, and the models that it brings.

    Each router goes with the protocol in which its errors are answered. `build` makes the objects of the routes, which
    find them by their class (`Context.of`), and frees them at the end. `upload_bytes` gives the longest body of each
    path that takes more than a request may have otherwise. `root` is what it answers at paths that name no task.
    """

    name: str
    routers: tuple[tuple[APIRouter, ErrorProtocol], ...]
    build: Callable[[Context], AbstractAsyncContextManager[tuple[object, ...]]]
    models: TaskModels | None = None
    companions: Companions | None = None
    panel: Panel | None = None
    root: tuple[RootAnswer, ...] = ()
    upload_bytes: Callable[[Settings], Mapping[str, int]] = lambda settings: {}
