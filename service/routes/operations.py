"""GET /health, /info and /metrics: for operators, load balancers and Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.models import EmbeddingModel, GenerationModel, LoadedModel, TranslationModel
from service.schemas.common import error_responses
from service.schemas.operations import (
    EmbeddingModelInfo,
    GenerationModelInfo,
    HealthResponse,
    InfoResponse,
    LimitsInfo,
    TranslationModelInfo,
)
from service.services import ServicesDep
from service.version import version

router = APIRouter(tags=["operations"])


@router.get("/health", responses=error_responses(503))
async def health(services: ServicesDep) -> HealthResponse:
    """200 when every model answers: each one is run for it."""
    return HealthResponse(status="ok", models=await services.health.check())


@router.get("/info")
async def info(services: ServicesDep) -> InfoResponse:
    """The models, their limits, and the server's, with the fields that TEI's clients read."""
    settings = services.settings
    models = services.registry.models
    embedders = services.registry.of_kind(EmbeddingModel)
    default: LoadedModel = embedders[0] if embedders else models[0]
    return InfoResponse(
        model_id=default.name,
        model_sha=default.info.get("sha"),
        model_dtype=default.precision,
        served_model_name=default.name,
        model_type=_model_type(default),
        max_concurrent_requests=settings.max_waiting_requests,
        max_input_length=_max_input_length(default),
        max_batch_tokens=settings.max_batch_tokens,
        max_batch_requests=settings.max_rows,
        max_client_batch_size=settings.max_client_batch_size if embedders else settings.max_batch_texts,
        auto_truncate=settings.auto_truncate if embedders else False,
        tokenization_workers=settings.tokenization_workers,
        version=version(),
        models=[_model_info(model) for model in models],
        limits=LimitsInfo.model_validate(settings, from_attributes=True),
    )


def _model_type(model: LoadedModel) -> dict[str, dict[str, Any]]:
    if isinstance(model, EmbeddingModel):
        return {"embedding": {"pooling": model.pooling}}
    return {model.task: _languages(model) if isinstance(model, TranslationModel) else {}}


def _max_input_length(model: LoadedModel) -> int:
    match model:
        case EmbeddingModel():
            return model.max_input_tokens
        case TranslationModel():
            return model.max_source_tokens
        case GenerationModel():
            return model.max_total_tokens - 1  # one position is for what is generated
    raise TypeError(f"GET /info knows no models of the class {type(model).__name__}")


def _model_info(model: LoadedModel) -> TranslationModelInfo | EmbeddingModelInfo | GenerationModelInfo:
    common: dict[str, Any] = {
        "name": model.name,
        "task": model.task,
        "device": model.device,
        "precision": model.precision,
        "attention": [] if model.attention is None else list(model.attention.kinds),
    }
    match model:
        case EmbeddingModel():
            return EmbeddingModelInfo(
                **common,
                details=dict(model.info),
                max_input_tokens=model.max_input_tokens,
                dimensions=model.dimensions,
                pooling=model.pooling,
                normalize=model.normalize,
                prompts=dict(model.prompts),
                default_prompt_name=model.default_prompt_name,
            )
        case TranslationModel():
            return TranslationModelInfo(
                **common,
                details=_languages(model) | dict(model.info),
                max_source_tokens=model.max_source_tokens,
                max_new_tokens=model.max_new_tokens,
                max_beam_size=model.max_beam_size,
                default_beam_size=model.default_beam_size,
                default_length_penalty=model.default_length_penalty,
            )
        case GenerationModel():
            return GenerationModelInfo(
                **common,
                details=dict(model.info),
                max_total_tokens=model.max_total_tokens,
                max_beam_size=model.max_beam_size,
                max_top_tokens=model.max_top_tokens,
                has_chat_template=model.chat_template is not None,
            )
    raise TypeError(f"GET /info knows no models of the class {type(model).__name__}")


def _languages(model: TranslationModel) -> dict[str, Any]:
    if not model.languages:
        return {}
    return {"languages": list(model.languages), "directions": [list(pair) for pair in sorted(model.directions)]}


@router.get("/metrics", response_class=Response)
def metrics(services: ServicesDep) -> Response:
    """Prometheus text."""
    return Response(services.metrics.render(), media_type=CONTENT_TYPE_LATEST)
