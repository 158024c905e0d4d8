"""GET /health, /info and /metrics: for operators, load balancers and Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.models import LoadedModel
from service.schemas.common import error_responses
from service.schemas.operations import HealthResponse, InfoResponse, LimitsInfo, ModelInfo
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
    models = [_model_info(model) for model in services.registry.models]
    first = services.registry.models[0]
    return InfoResponse(
        model_id=first.name,
        model_sha=first.info.get("sha"),
        model_dtype=first.precision,
        served_model_name=first.name,
        model_type={first.task: _task_info(first)},
        max_concurrent_requests=settings.max_waiting_requests,
        max_input_length=first.max_source_tokens,
        max_batch_tokens=settings.max_batch_tokens,
        max_batch_requests=settings.max_rows,
        max_client_batch_size=settings.max_batch_texts,
        auto_truncate=False,
        tokenization_workers=1,
        version=version(),
        models=models,
        limits=LimitsInfo.model_validate(settings, from_attributes=True),
    )


def _model_info(model: LoadedModel) -> ModelInfo:
    return ModelInfo(
        name=model.name,
        task=model.task,
        device=model.device,
        precision=model.precision,
        max_source_tokens=model.max_source_tokens,
        max_new_tokens=model.max_new_tokens,
        max_beam_size=model.max_beam_size,
        default_beam_size=model.default_beam_size,
        default_length_penalty=model.default_length_penalty,
        details=_task_info(model) | dict(model.info),
    )


def _task_info(model: LoadedModel) -> dict[str, Any]:
    if not model.languages:
        return {}
    return {"languages": list(model.languages), "directions": [list(pair) for pair in sorted(model.directions)]}


@router.get("/metrics", response_class=Response)
def metrics(services: ServicesDep) -> Response:
    """Prometheus text."""
    return Response(services.metrics.render(), media_type=CONTENT_TYPE_LATEST)
