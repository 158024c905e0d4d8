"""The head that gives the attention maps of the other heads' models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from service.engine.encode.attention import Kind
from service.heads.attend import routes
from service.heads.attend.attender import Attender
from service.heads.attend.load import load_attention
from service.heads.attend.support import AttentionSupport
from service.heads.head import Companions, Head, Panel
from service.heads.translate.translator import Translator
from service.http.context import Context
from service.http.error_handlers import OURS
from service.http.schemas import WireModel
from service.models.base import LoadedModel
from service.workers import WorkerPool

_INLINE_VALUES = 10_000


class AttentionInfo(WireModel):
    """The attention maps that a loaded model has."""

    attention: list[Kind] = Field(description="What POST /attention shows of it; nothing without an attention graph.")


def _info(model: LoadedModel) -> Mapping[str, Any]:
    support = model.companion(AttentionSupport)
    return {"attention": [] if support is None else list(support.kinds)}


@asynccontextmanager
async def _build(context: Context) -> AsyncIterator[tuple[object, ...]]:
    # One thread, because matplotlib is not thread-safe.
    rendering = WorkerPool(
        1, name="drawing", inline_size=_INLINE_VALUES, max_waiting=context.settings.max_waiting_answers
    )
    try:
        yield (Attender(context.settings, context.of(Translator), context.tokenization, rendering),)
    finally:
        await asyncio.to_thread(rendering.close)


ATTEND = Head(
    name="attend",
    routers=((routes.router, OURS),),
    build=_build,
    panel=Panel(name="attention", title="Attention", folder=Path(__file__).parent / "panel", place=2),
    companions=Companions(load=load_attention, info_schema=AttentionInfo, info=_info),
)
