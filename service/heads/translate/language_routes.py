"""GET /languages and POST /detect, LibreTranslate's protocol."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.heads.translate.fields import check_texts
from service.heads.translate.languages import Languages
from service.heads.translate.schemas import DetectedLanguage, DetectRequest, LanguageResponse
from service.heads.translate.translator import Translator
from service.http.context import ContextDep, KeyedFieldsDep, RecordDep, current_context
from service.http.disconnect import run_for_client
from service.http.plain import PlainRoute
from service.http.replies import json_response, to_json
from service.http.schemas import error_responses, request_body
from service.models.registry import ModelRegistry

router = APIRouter(tags=["translate"])


languages_router = APIRouter(tags=["translate"], route_class=PlainRoute)


@languages_router.get("/languages", response_class=Response, responses={200: {"model": list[LanguageResponse]}})
async def languages(request: Request) -> Response:
    """The languages on offer, and where each can be translated to. A body, which some clients send, is ignored."""
    return json_response(current_context(request.app).registry.view(_languages))


def _languages(registry: ModelRegistry) -> bytes:
    offered = registry.view(Languages).offered
    return to_json([{"code": each.code, "name": each.name, "targets": each.targets} for each in offered])


@router.post(
    "/detect",
    responses=error_responses(400, 403, 413, 429, 504),
    openapi_extra=request_body(DetectRequest),
)
async def detect(
    request: Request, fields: KeyedFieldsDep, context: ContextDep, record: RecordDep
) -> list[DetectedLanguage]:
    """The languages that a text may be in, best first."""
    text = " ".join(check_texts(fields, context.settings))
    detections = await run_for_client(
        request,
        context.of(Translator).detect(text, context.registry),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )
    return [DetectedLanguage(confidence=found.confidence, language=found.language) for found in detections]
