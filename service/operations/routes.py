"""GET /health, /info and /metrics: for operators, load balancers and Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.heads.head import ModelInfo
from service.heads.registry import COMPANIONS, TASKS, default_model
from service.http.context import ContextDep, require_administrator
from service.http.schemas import error_responses
from service.models.base import LoadedModel
from service.models.registry import ModelRegistry
from service.operations.health import health_response
from service.operations.schemas import MODEL_SCHEMAS, HealthResponse, InfoResponse, KeyUsage, LimitsInfo
from service.settings import Settings
from service.version import version

router = APIRouter(tags=["operations"])


@router.get("/health", response_class=Response, responses={**error_responses(503), 200: {"model": HealthResponse}})
@router.get("/ping", response_class=Response, responses={**error_responses(503), 200: {"model": HealthResponse}})
async def health(context: ContextDep, details: bool = False) -> Response:
    """200 when every model answers: each one is run for it. With `details=1` the answer says how each is."""
    return await health_response(context, with_details=details)


@router.get("/info")
async def info(context: ContextDep) -> InfoResponse:
    """The models, their limits, and the server's, with the fields that TEI's and TGI's clients read."""
    settings = context.settings
    default = default_model(context.registry)
    return InfoResponse(
        model_id=default.name,
        model_sha=default.info.get("sha"),
        model_dtype=default.precision,
        model_device_type=default.device,
        served_model_name=default.name,
        max_concurrent_requests=settings.max_waiting_requests,
        max_input_length=default.max_input_length,
        max_batch_tokens=settings.max_batch_tokens,
        max_batch_requests=settings.max_rows,
        tokenization_workers=settings.tokenization_workers,
        validation_workers=settings.tokenization_workers,
        version=version(),
        models=[_model_info(model) for model in context.registry.models],
        limits=LimitsInfo.model_validate(settings, from_attributes=True),
        **{"max_input_tokens": default.max_input_length} | _server_info(context.registry, settings),
    )


def _server_info(registry: ModelRegistry, settings: Settings) -> dict[str, Any]:
    """What the first model of each task says of the server; the first task wins."""
    fields: dict[str, Any] = {}
    for task in reversed(TASKS.values()):
        for model in registry.of_kind(task.kind)[:1]:
            fields.update(task.server_info(model, settings))
    return fields


def _model_info(model: LoadedModel) -> ModelInfo:
    fields = {
        "name": model.name,
        "task": model.task,
        "device": model.device,
        "precision": model.precision,
        "details": dict(model.info),
        **TASKS[model.task].info(model),
    }
    for companions in COMPANIONS:
        fields.update(companions.info(model))
    return MODEL_SCHEMAS[model.task](**fields)


@router.get("/usage", dependencies=[Depends(require_administrator)], responses=error_responses(400, 403, 429))
async def usage(context: ContextDep) -> list[KeyUsage]:
    """What each API key has used this month; for keys with the right to administer."""
    return [
        KeyUsage(
            name=account.key.name,
            characters=account.used.characters,
            requests=account.used.requests,
            characters_per_month=account.key.characters_per_month,
            requests_per_minute=account.key.requests_per_minute,
        )
        for account in context.access.accounts
    ]


@router.get("/metrics", response_class=Response)
def metrics(context: ContextDep) -> Response:
    """Prometheus text."""
    return Response(context.metrics.render(), media_type=CONTENT_TYPE_LATEST)
