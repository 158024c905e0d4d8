"""The fields that LibreTranslate's paths share, with the messages of its protocol."""

from __future__ import annotations

from service.errors import InvalidRequestError, TextTooLongError
from service.heads.translate.languages import AUTO, Languages
from service.http.request_parsing import RequestFields, check_text
from service.http.sizes import check_total
from service.models.registry import ModelRegistry
from service.settings import Settings


def check_texts(fields: RequestFields, settings: Settings) -> list[str]:
    """The texts of `q`, one or a list of them, within the limits, which are counted as LibreTranslate counts them.

    Raises MissingParameterError, TextTooLongError, or InvalidRequestError for what is no text.
    """
    q = fields.require("q")
    texts: list[str]
    if isinstance(q, str):
        texts = [q]
    elif isinstance(q, list) and fields.is_json and all(isinstance(text, str) for text in q):
        texts = q
    else:
        raise InvalidRequestError(
            "Invalid request: q parameter must be a string, or in JSON a list of strings", parameter="q"
        )
    if len(texts) > settings.max_batch_texts:
        raise TextTooLongError(len(texts), settings.max_batch_texts)
    check_total(texts, settings.max_text_characters, parameter="q")
    return texts


def check_languages(fields: RequestFields, registry: ModelRegistry) -> tuple[str, str]:
    """Source and target as the models spell them, or "auto" as the source."""
    source, target = check_text(fields, "source"), check_text(fields, "target")
    languages = registry.view(Languages)
    if source.strip().casefold() == AUTO:
        return AUTO, languages.code(target, parameter="target")
    return languages.code(source, parameter="source"), languages.code(target, parameter="target")
