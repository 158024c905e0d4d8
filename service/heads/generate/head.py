"""The head that continues texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from service.heads.generate import chat_routes, completion_routes, tgi_routes
from service.heads.generate.generator import TextGenerator
from service.heads.generate.load import load_generation
from service.heads.generate.model import GenerationModel
from service.heads.head import Head, ModelInfo, Panel, TaskModels
from service.http.context import Context
from service.http.error_handlers import OPENAI, TGI
from service.settings import Settings


class GenerationModelInfo(ModelInfo):
    """One loaded model that continues texts."""

    max_total_tokens: int
    max_beam_size: int
    max_top_tokens: int
    has_chat_template: bool


def _info(model: GenerationModel) -> Mapping[str, Any]:
    return {
        "max_total_tokens": model.max_total_tokens,
        "max_beam_size": model.max_beam_size,
        "max_top_tokens": model.max_top_tokens,
        "has_chat_template": model.chat_template is not None,
    }


def _server_info(model: GenerationModel, settings: Settings) -> Mapping[str, Any]:
    return {
        "model_type": {GenerationModel.task: {}},
        "max_client_batch_size": settings.max_batch_texts,
        "auto_truncate": False,
    }


@asynccontextmanager
async def _build(context: Context) -> AsyncIterator[tuple[object, ...]]:
    generator = TextGenerator(context.tokenization)
    for model in context.registry.of_kind(GenerationModel):
        generator.template(model)  # an invalid one stops the start and not a request
    yield (generator,)


GENERATE = Head(
    name="generate",
    routers=((tgi_routes.router, TGI), (completion_routes.router, OPENAI), (chat_routes.router, OPENAI)),
    build=_build,
    panel=Panel(name="generate", title="Generate", folder=Path(__file__).parent / "panel", place=4),
    models=TaskModels(
        kind=GenerationModel,
        load=load_generation,
        info_schema=GenerationModelInfo,
        info=_info,
        server_info=_server_info,
        one_loop=True,
    ),
)
