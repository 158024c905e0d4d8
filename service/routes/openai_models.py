"""GET /v1/models and /v1/models/{id}, OpenAI's protocol."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from service.models import LoadedModel, ModelRegistry
from service.schemas.openai import ModelList, ModelObject, openai_error_responses
from service.services import ServicesDep, require_bearer_key

router = APIRouter(tags=["openai"], dependencies=[Depends(require_bearer_key)])


@router.get("/v1/models", responses=openai_error_responses(401))
async def models(services: ServicesDep) -> ModelList:
    """Every loaded model, whatever its task."""
    registry = services.registry
    return ModelList(data=[_model_object(model, registry) for model in registry.models])


@router.get("/v1/models/{model_id:path}", responses=openai_error_responses(401, 404))
async def model(model_id: str, services: ServicesDep) -> ModelObject:
    """One loaded model."""
    return _model_object(services.registry.by_name(model_id), services.registry)


def _model_object(model: LoadedModel, registry: ModelRegistry) -> ModelObject:
    return ModelObject(id=model.name, created=registry.loaded_at, task=model.task)
