"""The head that makes vectors of texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from service.heads.embed import openai_routes, routes, similarity
from service.heads.embed.embedder import Embedder
from service.heads.embed.load import load_embedding
from service.heads.embed.model import EmbeddingModel
from service.heads.head import Fields, Head, ModelInfo, Panel, RootAnswer, TaskModels
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


def _is_for_vectors(fields: Fields) -> bool:
    return "inputs" in fields and any(name in fields for name in ("normalize", "dimensions", "prompt_name"))


def _compares_sentences(fields: Fields) -> bool:
    return isinstance(given := fields.get("inputs"), dict) and "source_sentence" in given


@asynccontextmanager
async def _build(context: Context) -> AsyncIterator[tuple[object, ...]]:
    yield (Embedder(context.tokenization, context.settings),)


EMBED = Head(
    name="embed",
    routers=((routes.router, TEI), (similarity.router, TEI), (openai_routes.router, OPENAI)),
    build=_build,
    panel=Panel(name="embed", title="Embed", folder=Path(__file__).parent / "panel", place=3),
    models=TaskModels(
        kind=EmbeddingModel,
        load=load_embedding,
        info_schema=EmbeddingModelInfo,
        info=_info,
        server_info=_server_info,
        token_lists="nested",
    ),
    root=(
        RootAnswer(
            task=None,
            kind=EmbeddingModel,
            answer=similarity.similarity_fields,
            protocol=TEI,
            claims=_compares_sentences,
            cuts_texts=True,
        ),
        RootAnswer(
            task=EmbeddingModel.task,
            kind=EmbeddingModel,
            answer=routes.embed_fields,
            protocol=TEI,
            claims=_is_for_vectors,
            fits=lambda fields: isinstance(fields.get("inputs"), str | list),
            cuts_texts=True,
        ),
    ),
)
