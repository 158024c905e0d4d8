"""POST /translate, LibreTranslate's protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request, Response

from service.errors import InvalidRequestError, quoted
from service.heads.translate.fields import check_languages, check_texts
from service.heads.translate.options import check_stream, search_options, target_prefixes
from service.heads.translate.schemas import TRANSLATE_EXAMPLES, SentenceEvent, TranslateRequest, TranslateResponse
from service.heads.translate.text.detect import Detection
from service.heads.translate.text.markup import Markup
from service.heads.translate.translator import Translation, TranslationStream, TranslationTask, Translator
from service.http.context import Context, read_request
from service.http.disconnect import run_for_client
from service.http.event_stream import EventStream
from service.http.plain import PlainRoute
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import error_responses, event_stream, request_body

router = APIRouter(tags=["translate"], route_class=PlainRoute)


def _task(fields: RequestFields, context: Context, record: RequestRecord) -> tuple[TranslationTask, bool]:
    """The fields as a task, checked in LibreTranslate's order, and whether it is streamed."""
    settings = context.settings
    for name in ("q", "source", "target"):
        fields.require(name)
    texts = check_texts(fields, settings)
    source, target = check_languages(fields, context.registry)
    markup = _markup(fields)
    options = validate(TranslateRequest, fields)
    is_list = isinstance(fields.values["q"], list)
    if options.stream:
        check_stream(options, is_list=is_list)
    task = TranslationTask(
        registry=context.registry,
        texts=texts,
        source=source,
        target=target,
        markup=markup,
        search=search_options(options, settings.max_alternatives),
        target_prefixes=target_prefixes(options, texts, markup.format, is_list=is_list),
        model_name=options.model or None,
        deadline=record.started + settings.request_timeout_seconds,
    )
    return task, options.stream


def _markup(fields: RequestFields) -> Markup:
    value = fields.values.get("format") or "text"
    if value in ("text", "html"):  # no set, in which a list cannot be looked up
        return Markup("html" if value == "html" else "text")
    raise InvalidRequestError(f"{quoted(value)} format is not supported", parameter="format")


@router.post(
    "/translate",
    response_class=Response,
    responses={
        **error_responses(400, 403, 413, 429, 503, 504),
        200: {"model": TranslateResponse, **event_stream(SentenceEvent)},
    },
    openapi_extra=request_body(TranslateRequest, examples=TRANSLATE_EXAMPLES),
)
async def translate(request: Request) -> Response:
    """Translate a text, or a list of texts. Takes JSON, a form, or a query string.

    With `stream` the answer has an event for each sentence of the text, and then one like the answer without `stream`.
    """
    fields, context, record = await read_request(request, key_in_body=True)
    task, is_stream = _task(fields, context, record)
    record.charge(task.num_characters)
    if is_stream:
        # Admitted before the answer begins, so that a full queue is answered with its own status.
        stream = await context.of(Translator).open(task, record)
        return EventStream(
            _events(stream),
            stream.aclose,
            timeout_seconds=context.settings.request_timeout_seconds,
            started=record.started,
        )
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
    answer = _answer_of(translation.text, translation.detected)
    if task.search.num_alternatives > 0:
        answer["alternatives"] = list(translation.alternatives)
    return answer


def _answer_of(text: str, detected: Detection | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"translatedText": text}
    if detected is not None:
        answer["detectedLanguage"] = {"confidence": detected.confidence, "language": detected.language}
    return answer


async def _events(stream: TranslationStream) -> AsyncGenerator[bytes]:
    index = 0
    async for text in stream:
        yield to_json({"index": index, "text": text})
        index += 1
    yield to_json(_answer_of(stream.text, stream.detected))
