"""GET /frontend/settings, LibreTranslate's protocol."""

from __future__ import annotations

from fastapi import APIRouter

from service.heads.translate.files import SUPPORTED_FORMATS
from service.heads.translate.languages import AUTO, Languages, language_name
from service.heads.translate.schemas import FrontendSettings, LanguageChoice, LanguageDefaults
from service.http.context import ContextDep

router = APIRouter(tags=["translate"])

_TYPING_PAUSE_MILLISECONDS = 500


@router.get("/frontend/settings")
async def frontend_settings(context: ContextDep) -> FrontendSettings:
    """What a web page for translation needs to know."""
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


def _default_target(codes: list[str]) -> str:
    """The first language that is not English, since most texts come in English; English where it is alone."""
    return next((code for code in codes if code != "en"), "en")
