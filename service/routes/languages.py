"""GET /languages and POST /detect, LibreTranslate's protocol."""

from __future__ import annotations

from fastapi import APIRouter, Request

from service.disconnect import run_for_client
from service.request_parsing import check_texts
from service.schemas.common import error_responses, request_body
from service.schemas.translate import DetectedLanguage, DetectRequest, LanguageResponse
from service.services import FieldsDep, RecordDep, ServicesDep

router = APIRouter(tags=["translate"])


@router.get("/languages")
async def languages(services: ServicesDep) -> list[LanguageResponse]:
    """The languages on offer, and where each can be translated to. A body, which some clients send, is ignored."""
    return [
        LanguageResponse(code=language.code, name=language.name, targets=list(language.targets))
        for language in services.registry.languages
    ]


@router.post(
    "/detect",
    responses=error_responses(400, 403, 413, 429, 504),
    openapi_extra=request_body(DetectRequest),
)
async def detect(
    request: Request, fields: FieldsDep, services: ServicesDep, record: RecordDep
) -> list[DetectedLanguage]:
    """The languages that a text may be in, best first."""
    text = " ".join(check_texts(fields, services.settings))
    detections = await run_for_client(
        request,
        services.translator.detect(text),
        timeout_seconds=services.settings.request_timeout_seconds,
        started=record.started,
    )
    return [DetectedLanguage(confidence=found.confidence, language=found.language) for found in detections]
