"""POST /v2/translate, /v2/languages, /v2/usage and the glossaries' paths, DeepL's protocol."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from service.errors import InvalidRequestError, NotFoundError, TextTooLongError
from service.heads.translate.deepl_fields import check_common_fields, deepl_fields
from service.heads.translate.deepl_languages import parse_language, source_code, source_languages, target_languages
from service.heads.translate.deepl_schemas import (
    DeepLLanguage,
    DeepLTranslateRequest,
    DeepLTranslateResponse,
    DeepLUsage,
    Glossaries,
    GlossaryPairs,
    LanguagesRequest,
    deepl_error_responses,
)
from service.heads.translate.job import SearchOptions
from service.heads.translate.languages import AUTO, Languages
from service.heads.translate.text.markup import Markup
from service.heads.translate.text.segment import Splitting
from service.heads.translate.translator import Translation, TranslationTask, Translator
from service.http.context import Context, ContextDep, FieldsDep, RecordDep, read_request, require_key
from service.http.disconnect import run_for_client
from service.http.plain import PlainRoute
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import validate
from service.http.schemas import request_body
from service.http.sizes import check_total

router = APIRouter(tags=["deepl"])
text_router = APIRouter(tags=["deepl"], route_class=PlainRoute)
glossary_router = APIRouter(tags=["deepl"], dependencies=[Depends(require_key)])

_SPLITTING: dict[str, Splitting] = {"0": "off", "1": "lines", "nonewlines": "sentences"}
_GREEDY = SearchOptions(beam_size=1)
_NO_LIMIT = 1_000_000_000_000
_NO_GLOSSARY = deepl_error_responses(403, 404, 429)


@text_router.post(
    "/v2/translate",
    response_class=Response,
    responses={**deepl_error_responses(400, 403, 404, 413, 429, 456, 503, 504), 200: {"model": DeepLTranslateResponse}},
    openapi_extra=request_body(DeepLTranslateRequest),
)
async def translate(request: Request) -> Response:
    """Translate texts. Takes JSON or a form."""
    fields, context, record = await read_request(request)
    given = deepl_fields(fields)
    for name in ("text", "target_lang"):
        given.require(name)
    options = validate(DeepLTranslateRequest, given)
    task = _task(options, context, record)
    record.charge(task.num_characters)
    translations = await run_for_client(
        request,
        context.of(Translator).translate(task, record),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )
    answers = [
        _answer(text, translation, task, options) for text, translation in zip(task.texts, translations, strict=True)
    ]
    return json_response(to_json({"translations": answers}))


def _task(options: DeepLTranslateRequest, context: Context, record: RequestRecord) -> TranslationTask:
    settings = context.settings
    check_common_fields(options)
    if options.custom_instructions:
        raise InvalidRequestError(
            "Invalid request: custom_instructions parameter: no model takes instructions",
            parameter="custom_instructions",
        )
    if len(options.text) > settings.max_batch_texts:
        raise TextTooLongError(len(options.text), settings.max_batch_texts, parameter="text")
    check_total(options.text, settings.max_text_characters, parameter="text")
    languages = context.registry.view(Languages)
    target = parse_language(options.target_lang, languages, parameter="target_lang")
    source = options.source_lang
    return TranslationTask(
        registry=context.registry,
        texts=options.text,
        source=AUTO if source is None else parse_language(source, languages, parameter="source_lang"),
        target=target,
        markup=Markup(
            options.tag_handling or "text",
            splitting=None if options.split_sentences is None else _SPLITTING[options.split_sentences],
            ignored_tags=frozenset(options.ignore_tags),
            splitting_tags=frozenset(options.splitting_tags),
            non_splitting_tags=frozenset(options.non_splitting_tags),
        ),
        search=_GREEDY if options.model_type == "latency_optimized" else SearchOptions(),
        deadline=record.started + settings.request_timeout_seconds,
    )


def _answer(
    text: str, translation: Translation, task: TranslationTask, options: DeepLTranslateRequest
) -> dict[str, Any]:
    source = translation.detected.language if translation.detected else task.source
    answer: dict[str, Any] = {"detected_source_language": source_code(source), "text": translation.text}
    if options.show_billed_characters:
        answer["billed_characters"] = len(text)
    if options.model_type is not None:
        answer["model_type_used"] = options.model_type.removeprefix("prefer_")
    return answer


@router.get("/v2/languages", responses=deepl_error_responses(400, 403, 429), response_model_exclude_none=True)
@router.post("/v2/languages", responses=deepl_error_responses(400, 403, 429), response_model_exclude_none=True)
async def languages(fields: FieldsDep, context: ContextDep) -> list[DeepLLanguage]:
    """The languages on offer; the Python client sends the field `type` as a form on GET."""
    options = validate(LanguagesRequest, deepl_fields(fields))
    offered = context.registry.view(Languages)
    if options.type == "source":
        return [DeepLLanguage(language=code, name=name) for code, name in source_languages(offered)]
    return [
        DeepLLanguage(language=code, name=name, supports_formality=False) for code, name in target_languages(offered)
    ]


@router.get("/v2/usage", responses=deepl_error_responses(403, 429))
@router.post("/v2/usage", responses=deepl_error_responses(403, 429))
async def usage(fields: FieldsDep, record: RecordDep) -> DeepLUsage:
    """What the key of the request has used this month."""
    account = record.account
    assert account is not None  # FieldsDep has found the key
    limit = account.key.characters_per_month
    return DeepLUsage(character_count=account.used.characters, character_limit=_NO_LIMIT if limit is None else limit)


@glossary_router.get("/v2/glossary-language-pairs", responses=deepl_error_responses(403, 429))
async def glossary_pairs() -> GlossaryPairs:
    """No pair of languages has glossaries."""
    return GlossaryPairs(supported_languages=[])


@glossary_router.get("/v2/glossaries", responses=deepl_error_responses(403, 429))
@glossary_router.get("/v3/glossaries", responses=deepl_error_responses(403, 429))
async def glossaries() -> Glossaries:
    """No glossary."""
    return Glossaries(glossaries=[])


@glossary_router.post("/v2/glossaries", responses=deepl_error_responses(400, 403, 429))
@glossary_router.post("/v3/glossaries", responses=deepl_error_responses(400, 403, 429))
async def create_glossary() -> None:
    """Refused."""
    raise InvalidRequestError("Invalid request: this server keeps no glossaries")


@glossary_router.get("/v2/glossaries/{path:path}", responses=_NO_GLOSSARY)
@glossary_router.delete("/v2/glossaries/{path:path}", responses=_NO_GLOSSARY)
@glossary_router.get("/v3/glossaries/{path:path}", responses=_NO_GLOSSARY)
@glossary_router.put("/v3/glossaries/{path:path}", responses=_NO_GLOSSARY)
@glossary_router.patch("/v3/glossaries/{path:path}", responses=_NO_GLOSSARY)
@glossary_router.delete("/v3/glossaries/{path:path}", responses=_NO_GLOSSARY)
async def glossary(path: str) -> None:
    """There is none of any id."""
    raise NotFoundError(f"There is no glossary {path.partition('/')[0][:64]!r}: this server keeps none")
