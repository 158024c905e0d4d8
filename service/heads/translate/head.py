"""The head that translates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from service.heads.head import Head, ModelInfo, Panel, RootAnswer, TaskModels
from service.heads.translate import (
    deepl_documents,
    deepl_routes,
    file_routes,
    frontend_route,
    language_routes,
    root,
    routes,
)
from service.heads.translate.documents import DocumentTranslator
from service.heads.translate.file_store import FileStore
from service.heads.translate.load import load_translation
from service.heads.translate.model import TranslationModel
from service.heads.translate.translator import Translator, make_detector
from service.http.context import Context
from service.http.error_handlers import DEEPL, HUB, LIBRETRANSLATE
from service.settings import Settings

_MULTIPART_OVERHEAD_BYTES = 16 * 1024  # boundaries, headers and the small fields around an uploaded file


class TranslationModelInfo(ModelInfo):
    """One loaded model for translation."""

    max_source_tokens: int
    max_new_tokens: int
    max_beam_size: int
    default_beam_size: int
    default_length_penalty: float


def _info(model: TranslationModel) -> Mapping[str, Any]:
    return {
        "details": _languages(model) | dict(model.info),
        "max_source_tokens": model.max_source_tokens,
        "max_new_tokens": model.max_new_tokens,
        "max_beam_size": model.max_beam_size,
        "default_beam_size": model.default_beam_size,
        "default_length_penalty": model.default_length_penalty,
    }


def _server_info(model: TranslationModel, settings: Settings) -> Mapping[str, Any]:
    return {
        "model_type": {TranslationModel.task: _languages(model)},
        "max_client_batch_size": settings.max_batch_texts,
        "auto_truncate": False,
    }


def _languages(model: TranslationModel) -> dict[str, Any]:
    if not model.languages:
        return {}
    return {"languages": list(model.languages), "directions": [list(pair) for pair in sorted(model.directions)]}


@asynccontextmanager
async def _build(context: Context) -> AsyncIterator[tuple[object, ...]]:
    settings = context.settings
    context.registry.view(make_detector)  # loads its own small model, for which no request should wait
    translator = Translator(settings, context.tokenization)
    documents = DocumentTranslator(translator, settings)
    files = FileStore(max_bytes=settings.max_stored_file_bytes, lifetime_seconds=settings.file_lifetime_seconds)
    documents.start()
    try:
        yield translator, documents, files
    finally:
        await documents.close()
        files.close()


def _upload_bytes(settings: Settings) -> Mapping[str, int]:
    longest = settings.max_file_bytes + _MULTIPART_OVERHEAD_BYTES
    return {"/translate_file": longest, deepl_documents.PATH: longest}


TRANSLATE = Head(
    name="translate",
    routers=(
        (language_routes.languages_router, LIBRETRANSLATE),
        *((each.router, LIBRETRANSLATE) for each in (routes, language_routes, file_routes, frontend_route)),
        *((each, DEEPL) for each in (deepl_routes.text_router, deepl_routes.router, deepl_routes.glossary_router)),
        (deepl_documents.router, DEEPL),
    ),
    build=_build,
    panel=Panel(name="translate", title="Translate", folder=Path(__file__).parent / "panel", place=1),
    models=TaskModels(
        kind=TranslationModel,
        load=load_translation,
        info_schema=TranslationModelInfo,
        info=_info,
        server_info=_server_info,
    ),
    upload_bytes=_upload_bytes,
    root=(
        RootAnswer(
            task=TranslationModel.task,
            kind=TranslationModel,
            answer=root.translate_at_root,
            protocol=HUB,
            claims=root.names_languages,
            fits=lambda fields: isinstance(fields.get("inputs"), str | list),
            prediction=root.prediction,
        ),
    ),
)
