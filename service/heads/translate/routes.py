"""POST /translate, LibreTranslate's protocol."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from service.errors import InvalidRequestError, quoted
from service.heads.translate.fields import check_languages, check_texts
from service.heads.translate.job import SearchOptions, TextFormat
from service.heads.translate.schemas import TRANSLATE_EXAMPLES, TranslateRequest, TranslateResponse
from service.heads.translate.translator import Translation, TranslationTask, Translator
from service.http.context import Context, read_request
from service.http.disconnect import run_for_client
from service.http.plain import PlainRoute
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import error_responses, request_body
from service.settings import Settings

router = APIRouter(tags=["translate"], route_class=PlainRoute)


def _task(fields: RequestFields, context: Context, record: RequestRecord) -> TranslationTask:
    """The request's fields as a task, checked in the order that LibreTranslate's clients know."""
    settings = context.settings
    for name in ("q", "source", "target"):
        fields.require(name)
    texts = check_texts(fields, settings)
    source, target = check_languages(fields, context.registry)
    text_format = _text_format(fields)
    options = validate(TranslateRequest, fields)
    _check_alternatives(options, settings)
    return TranslationTask(
        registry=context.registry,
        texts=texts,
        source=source,
        target=target,
        format=text_format,
        search=SearchOptions(
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            max_new_tokens=options.max_new_tokens,
            num_alternatives=options.alternatives,
        ),
        model_name=options.model or None,
        deadline=record.started + settings.request_timeout_seconds,
    )


def _text_format(fields: RequestFields) -> TextFormat:
    value = fields.values.get("format") or "text"
    if value in ("text", "html"):  # no set, in which a list cannot be looked up
        return "html" if value == "html" else "text"
    raise InvalidRequestError(f"{quoted(value)} format is not supported", parameter="format")


def _check_alternatives(options: TranslateRequest, settings: Settings) -> None:
    if options.alternatives > settings.max_alternatives:
        raise InvalidRequestError(
            f"Invalid request: alternatives parameter must be <= {settings.max_alternatives}", parameter="alternatives"
        )


@router.post(
    "/translate",
    response_class=Response,
    responses={**error_responses(400, 403, 413, 429, 503, 504), 200: {"model": TranslateResponse}},
    openapi_extra=request_body(TranslateRequest, examples=TRANSLATE_EXAMPLES),
)
async def translate(request: Request) -> Response:
    """Translate a text, or a list of texts. Takes JSON, a form, or a query string."""
    fields, context, record = await read_request(request, key_in_body=True)
    task = _task(fields, context, record)
    translations = await run_for_client(
        request,
        context.of(Translator).translate(task, record),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )
    answers = [_answer(task, translation) for translation in translations]
    if isinstance(fields.values["q"], str):
        return json_response(to_json(answers[0]))
    return json_response(to_json({key: [answer[key] for answer in answers] for key in answers[0]}))


def _answer(task: TranslationTask, translation: Translation) -> dict[str, Any]:
    answer: dict[str, Any] = {"translatedText": translation.text}
    if translation.detected is not None:
        detected = translation.detected
        answer["detectedLanguage"] = {"confidence": detected.confidence, "language": detected.language}
    if task.search.num_alternatives > 0:
        answer["alternatives"] = list(translation.alternatives)
    return answer
