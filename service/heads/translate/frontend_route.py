"""GET /frontend/settings and POST /suggest, LibreTranslate's protocol."""

from __future__ import annotations

from fastapi import APIRouter

from service.errors import ForbiddenError
from service.heads.translate.files import SUPPORTED_FORMATS
from service.heads.translate.languages import AUTO, Languages, language_name
from service.heads.translate.schemas import FrontendSettings, LanguageChoice, LanguageDefaults
from service.http.context import ContextDep, KeyedFieldsDep
from service.http.schemas import error_responses

router = APIRouter(tags=["translate"])

_TYPING_PAUSE_MILLISECONDS = 500


@router.get("/frontend/settings")
async def frontend_settings(context: ContextDep) -> FrontendSettings:
    """The settings of a web page for translation."""
    settings = context.settings
    key_required = not context.access.keys.is_open
    target = _default_target(context.registry.view(Languages).codes)
    return FrontendSettings(
        charLimit=settings.max_text_characters,
        frontendTimeout=_TYPING_PAUSE_MILLISECONDS,
        apiKeys=key_required,
        keyRequired=key_required,
        suggestions=False,
        filesTranslation=True,
        supportedFilesFormat=list(SUPPORTED_FORMATS),
        language=LanguageDefaults(
            source=LanguageChoice(code=AUTO, name="Auto Detect"),
            target=LanguageChoice(code=target, name=language_name(target)),
        ),
    )


@router.post("/suggest", response_model=None, responses=error_responses(400, 403, 429))
async def suggest(fields: KeyedFieldsDep) -> None:
    """Suggestions are off, as `suggestions` of /frontend/settings says: 403."""
    raise ForbiddenError("Suggestions are disabled on this server.")


def _default_target(codes: list[str]) -> str:
    """The first language that is not English, since most texts come in English; English where it is alone."""
    return next((code for code in codes if code != "en"), "en")
