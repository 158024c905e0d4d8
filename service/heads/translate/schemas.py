"""LibreTranslate's protocol, with our own optional fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from service.http.schemas import Count, Positive, Seed, Share, WireModel


class TranslateRequest(WireModel):
    """The optional fields of POST /translate, and for the documentation the required ones.

    `q`, `source`, `target` and `format` are checked by `service.http.request_parsing` and the route, in the order and
    with the messages of LibreTranslate.
    """

    q: str | list[str] = Field(description="Text to translate; a list of texts in JSON only.")
    source: str = Field(description='Language code of the text, or "auto".', examples=["en"])
    target: str = Field(description="Language code wanted.", examples=["de"])
    format: str = Field("text", description='"text", or "html" to keep tags and translate the text between them.')
    alternatives: Annotated[int, AfterValidator(lambda number: max(0, number))] = Field(
        0, ge=-1, description="How many other translations to add; -1 is 0."
    )
    api_key: str | None = Field(None, description="API key, where the server asks for one.")
    beam_size: int | None = Field(None, ge=1, description="Width of the beam search; 1 is greedy, the fastest.")
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = Field(
        None, description="Exponent of the length that divides a hypothesis' score; more favours longer ones."
    )
    max_new_tokens: int | None = Field(None, ge=1, description="Longest translation of a sentence, in tokens.")
    target_prefix: str | list[str] | None = Field(
        None, description="What the translation of the first sentence begins with; a list of them for a list of texts."
    )
    temperature: Positive | None = Field(None, description="Implies sampling, as the next two do; goes without beams.")
    top_k: Count | None = None
    top_p: Share | None = None
    seed: Seed | None = Field(None, description="Equal seeds draw equal translations; without sampling of no effect.")
    stream: bool = Field(False, description="Answer with an event for each sentence; for one text.")
    model: str | None = Field(None, description="Name of the model; else chosen by the language pair.")


class DetectRequest(WireModel):
    """POST /detect."""

    q: str = Field(description="Text whose language to tell.")
    api_key: str | None = Field(None, description="API key, where the server asks for one.")


class DetectedLanguage(WireModel):
    """A language and the confidence in it, in per cent."""

    confidence: float = Field(ge=0, le=100)
    language: str


class TranslateResponse(WireModel):
    """200 of POST /translate. The shapes follow `q`: a text gives a text, a list a list."""

    translatedText: str | list[str]  # noqa: N815 - the protocol's spelling
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class SentenceEvent(WireModel):
    """One event of a stream: a translated sentence, in the order of the text, and the text around it."""

    index: int = Field(description="0 for the first sentence.")
    text: str = Field(description="All of them, joined, are the translated text.")


class LanguageResponse(WireModel):
    """One language of GET /languages."""

    code: str
    name: str
    targets: list[str]


class TranslateFileResponse(WireModel):
    """200 of POST /translate_file."""

    translatedFileUrl: str  # noqa: N815


class LanguageChoice(WireModel):
    """A language that a page offers."""

    code: str
    name: str


class LanguageDefaults(WireModel):
    """What a page shows first."""

    source: LanguageChoice
    target: LanguageChoice


class FrontendSettings(WireModel):
    """GET /frontend/settings, for web pages that speak LibreTranslate's protocol."""

    charLimit: int  # noqa: N815
    frontendTimeout: int = Field(description="Milliseconds to wait after typing.")  # noqa: N815
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    language: LanguageDefaults


class HubParameters(WireModel):
    """The languages as Hugging Face's clients name them; the text's own is detected where it is not given."""

    src_lang: str | None = None
    tgt_lang: str | None = None


class HubRequest(WireModel):
    """What Hugging Face's clients post to the root for a translation, besides the `inputs`."""

    parameters: HubParameters = HubParameters()
    model: str | None = None


TRANSLATE_EXAMPLES: dict[str, dict[str, object]] = {
    "text": {"value": {"q": "Good morning.", "source": "en", "target": "de"}},
    "list": {"value": {"q": ["Good morning.", "Thank you."], "source": "auto", "target": "de", "alternatives": 2}},
}


class FileRequest(BaseModel):
    """POST /translate_file, multipart."""

    file: str = Field(json_schema_extra={"format": "binary"})
    source: str
    target: str
    api_key: str | None = None
