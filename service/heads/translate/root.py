"""Translation in the words of Hugging Face's clients, which post to the root of a server."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response

from service.errors import InputError
from service.heads.head import Fields
from service.heads.translate.errors import UnsupportedLanguageError
from service.heads.translate.languages import AUTO, Languages
from service.heads.translate.schemas import HubRequest
from service.heads.translate.translator import TranslationTask, Translator
from service.http.context import Context
from service.http.disconnect import run_for_client
from service.http.inputs import parse_texts
from service.http.records import RequestRecord
from service.http.replies import json_response, to_json
from service.http.request_parsing import RequestFields, validate
from service.http.sizes import check_total
from service.models.registry import ModelRegistry

_LANGUAGES = ("src_lang", "tgt_lang")


def names_languages(fields: Fields) -> bool:
    """Whether a body can only be meant for a translation."""
    parameters = fields.get("parameters")
    return isinstance(parameters, dict) and any(parameters.get(name) is not None for name in _LANGUAGES)


async def translate_at_root(
    request: Request, fields: RequestFields, context: Context, record: RequestRecord
) -> Response:
    """A list with a translation for each input, also for one."""
    settings, registry = context.settings, context.registry
    inputs = parse_texts(fields, "inputs", max_batch_size=settings.max_batch_texts)
    check_total(inputs, settings.max_text_characters, parameter="inputs")
    options = validate(HubRequest, fields, InputError)
    parameters = options.parameters
    translator = context.of(Translator)
    source = AUTO if parameters.src_lang is None else _code(parameters.src_lang, registry, "src_lang")
    if parameters.tgt_lang is None:
        known = await translator.detect_source(" ".join(inputs), registry) if source == AUTO else source
        target = _only_target(known, registry)
    else:
        target = _code(parameters.tgt_lang, registry, "tgt_lang")
    task = TranslationTask(
        registry=registry,
        texts=inputs,
        source=source,
        target=target,
        model_name=options.model or None,
        deadline=record.started + settings.request_timeout_seconds,
    )
    record.charge(task.num_characters)
    found = await run_for_client(
        request,
        translator.translate(task, record),
        timeout_seconds=settings.request_timeout_seconds,
        started=record.started,
    )
    return json_response(to_json([{"translation_text": translation.text} for translation in found]))


def _code(written: str, registry: ModelRegistry, parameter: str) -> str:
    """The language as the models spell it. Hugging Face's clients also write the codes of mBART, such as en_XX."""
    languages = registry.view(Languages)
    try:
        return languages.code(written, parameter=parameter)
    except UnsupportedLanguageError:
        return languages.code(written.partition("_")[0], parameter=parameter)


def _only_target(source: str, registry: ModelRegistry) -> str:
    (language,) = [language for language in registry.view(Languages).offered if language.code == source]
    targets = [code for code in language.targets if code != source]
    if len(targets) != 1:
        raise InputError(
            f"Input validation error: `tgt_lang` is needed for a text in {source!r}, choose from: {', '.join(targets)}",
            parameter="tgt_lang",
        )
    return targets[0]


def prediction(answer: Any) -> Any:
    """What /vertex gives: the texts, without the list and the name around."""
    texts = [each["translation_text"] for each in answer]
    return texts[0] if len(texts) == 1 else texts
