"""The head that makes vectors of texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from service.heads.embed import openai_routes, routes
from service.heads.embed.embedder import Embedder
from service.heads.embed.load import load_embedding
from service.heads.embed.model import EmbeddingModel
from service.heads.head import Head, ModelInfo, Panel, TaskModels
from service.http.context import Context
from service.http.error_handlers import OPENAI, TEI
from service.settings import Settings


class EmbeddingModelInfo(ModelInfo):
    """One loaded model for embeddings."""

    max_input_tokens: int
    dimensions: int
    pooling: str
    normalize: bool
    prompts: dict[str, str]
    default_prompt_name: str | None


def _info(model: EmbeddingModel) -> Mapping[str, Any]:
    return {
        "max_input_tokens": model.max_input_tokens,
        "dimensions": model.dimensions,
        "pooling": model.pooling,
        "normalize": model.normalize,
        "prompts": dict(model.prompts),
        "default_prompt_name": model.default_prompt_name,
    }


def _server_info(model: EmbeddingModel, settings: Settings) -> Mapping[str, Any]:
    return {
        "model_type": {"embedding": {"pooling": model.pooling}},
        "max_client_batch_size": settings.max_client_batch_size,
        "auto_truncate": settings.auto_truncate,
    }


@asynccontextmanager
async def _build(context: Context) -> AsyncIterator[tuple[object, ...]]:
    yield (Embedder(context.tokenization, context.settings.max_answer_values),)


EMBED = Head(
    name="embed",
    routers=((routes.router, TEI), (openai_routes.router, OPENAI)),
    build=_build,
    panel=Panel(name="embed", title="Embed", folder=Path(__file__).parent / "panel", place=3),
    models=TaskModels(
        kind=EmbeddingModel,
        load=load_embedding,
        info_schema=EmbeddingModelInfo,
        info=_info,
        server_info=_server_info,
    ),
)
