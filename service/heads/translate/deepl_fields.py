"""The fields that DeepL's paths share, made one kind of whatever they came as, and checked."""

from __future__ import annotations

from service.errors import InvalidRequestError, NotFoundError, quoted
from service.heads.translate.deepl_schemas import CommonFields
from service.http.request_parsing import RequestFields

_LISTS = ("text", "glossary_ids", "ignore_tags", "splitting_tags", "non_splitting_tags", "custom_instructions")


def deepl_fields(fields: RequestFields) -> RequestFields:
    """The same with a list where the protocol has one: a form repeats a field, and may call it `text[]`.

    What is empty is left out, but a text may be.
    """
    values = {name: value for name, value in fields.values.items() if value != ""}
    for name in _LISTS:
        given = fields.all_of(name) + fields.all_of(f"{name}[]")
        if given:
            values[name] = given
    return RequestFields(values, is_json=fields.is_json)


def check_common_fields(options: CommonFields) -> None:
    """NotFoundError for a glossary, InvalidRequestError for a style, a translation memory or a formality."""
    if glossary := options.glossary_id or next(iter(options.glossary_ids), None):
        raise NotFoundError(f"There is no glossary {quoted(glossary)!r}: this server keeps none")
    for name in ("style_id", "translation_memory_id"):
        if (value := getattr(options, name)) is not None:
            raise InvalidRequestError(
                f"Invalid request: {name} parameter: there is none. Given: {quoted(value)!r}", parameter=name
            )
    if options.formality in ("more", "less"):
        raise InvalidRequestError(
            f"Invalid request: formality parameter: no model for {quoted(options.target_lang)} has it; use "
            f"prefer_{options.formality} where it does not matter. Given: {options.formality!r}",
            parameter="formality",
        )
