"""DeepL's protocol: POST /v2/translate, the languages, and what glossaries there are."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from service.http.schemas import WireModel

_MAX_NAMES = 256


def _as_a_digit(value: Any) -> Any:
    """JSON may write the splitting "1" as 1 or true."""
    return str(int(value)) if isinstance(value, bool | int) else value


def _names(value: Any) -> Any:
    """Names of tags; each item of a list may hold several, with commas between them."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [name.strip() for item in value for name in item.split(",") if name.strip()]
    return value


SplitSentences = Annotated[Literal["0", "1", "nonewlines"], BeforeValidator(_as_a_digit)]
TagNames = Annotated[list[str], Field(max_length=_MAX_NAMES), BeforeValidator(_names)]
Formality = Literal["default", "more", "less", "prefer_more", "prefer_less"]
DocumentState = Literal["queued", "translating", "done", "error"]
ModelType = Literal["quality_optimized", "prefer_quality_optimized", "latency_optimized"]


class CommonFields(WireModel):
    """What a request for texts and one for a document have in common. Empty fields are as good as absent."""

    target_lang: str = Field(description="Language wanted; EN-US and EN-GB are English.", examples=["DE"])
    source_lang: str | None = Field(None, description="Language of the text; else it is detected.")
    formality: Formality = Field("default", description="more and less are refused where no model has it.")
    glossary_id: str | None = Field(None, description="There are no glossaries: 404.")
    glossary_ids: list[str] = Field([], max_length=_MAX_NAMES, description="The same.")
    style_id: str | None = Field(None, description="Refused.")
    translation_memory_id: str | None = Field(None, description="Refused.")


class DeepLTranslateRequest(CommonFields):
    """POST /v2/translate. Forms repeat the fields that are lists here."""

    text: list[str] = Field(description="Texts to translate.", min_length=1)
    context: str | None = Field(None, description="Taken and of no effect: models see one sentence at a time.")
    split_sentences: SplitSentences | None = Field(
        None, description="0: one sentence; 1: also at line breaks, the default; nonewlines: the default for HTML."
    )
    preserve_formatting: bool = Field(False, description="Of no effect: formatting is never corrected.")
    tag_handling: Literal["xml", "html"] | None = None
    tag_handling_version: Literal["v1", "v2"] | None = Field(None, description="Of no effect.")
    outline_detection: bool = Field(True, description="Of no effect: every tag ends a sentence.")
    ignore_tags: TagNames = Field([], description="Elements whose text is not translated.")
    splitting_tags: TagNames = Field([], description="Elements that end a sentence, as all do.")
    non_splitting_tags: TagNames = Field([], description="Of no effect yet.")
    model_type: ModelType | None = Field(None, description="latency_optimized is greedy search.")
    custom_instructions: list[str] = Field([], max_length=_MAX_NAMES, description="Refused.")
    show_billed_characters: bool = False


class DocumentRequest(CommonFields):
    """POST /v2/document, multipart."""

    file: Any = Field(None, json_schema_extra={"type": "string", "format": "binary"})
    filename: str | None = Field(None, description="Name of the file with its extension; else that of the upload.")
    output_format: str | None = Field(None, description="Its own extension alone: a file keeps its format.")


class DocumentHandle(WireModel):
    """200 of POST /v2/document: both are needed to ask after the document."""

    document_id: str
    document_key: str


class DocumentKey(WireModel):
    """The body of POST /v2/document/{document_id} and of its /result."""

    document_key: str


class DocumentStatus(WireModel):
    """200 of POST /v2/document/{document_id}."""

    document_id: str
    status: DocumentState
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None


class DeepLUsage(WireModel):
    """200 of GET /v2/usage: what the key has used this month, and may use."""

    character_count: int
    character_limit: int = Field(description="10^12 where there is no limit.")


class DeepLTranslation(WireModel):
    """One translated text."""

    detected_source_language: str
    text: str
    billed_characters: int | None = None
    model_type_used: str | None = None


class DeepLTranslateResponse(WireModel):
    """200 of POST /v2/translate."""

    translations: list[DeepLTranslation]


class DeepLLanguage(WireModel):
    """One language of /v2/languages; `supports_formality` of targets alone."""

    language: str
    name: str
    supports_formality: bool | None = None


class LanguagesRequest(WireModel):
    """/v2/languages, whose fields come in the query string, or as a body, on GET too."""

    type: Literal["source", "target"] = "source"


class GlossaryPairs(WireModel):
    """200 of GET /v2/glossary-language-pairs."""

    supported_languages: list[Any]


class Glossaries(WireModel):
    """200 of GET /v2/glossaries and /v3/glossaries."""

    glossaries: list[Any]


class DeepLError(WireModel):
    """Every error of DeepL's paths."""

    message: str = Field(description="What was wrong with which value, and what is allowed.")


def deepl_error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries for error statuses."""
    return {status: {"model": DeepLError} for status in statuses}
