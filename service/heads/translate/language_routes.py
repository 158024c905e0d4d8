"""GET /languages and POST /detect, LibreTranslate's protocol."""

from __future__ import annotations

from fastapi import APIRouter, Request

from service.heads.translate.fields import check_texts
from service.heads.translate.languages import Languages
from service.heads.translate.schemas import DetectedLanguage, DetectRequest, LanguageResponse
from service.heads.translate.translator import Translator
from service.http.context import ContextDep, KeyedFieldsDep, RecordDep
from service.http.disconnect import run_for_client
from service.http.schemas import error_responses, request_body

router = APIRouter(tags=["translate"])


@router.get("/languages")
async def languages(context: ContextDep) -> list[LanguageResponse]:
    """The languages on offer, and where each can be translated to. A body, which some clients send, is ignored."""
    return [
        LanguageResponse(code=language.code, name=language.name, targets=list(language.targets))
        for language in context.registry.view(Languages).offered
    ]


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
