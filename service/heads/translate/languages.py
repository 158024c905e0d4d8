"""The languages that the loaded models translate, and the model for a pair of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from babel import Locale, UnknownLocaleError

from service.heads.translate.errors import UnavailableDirectionError, UnsupportedLanguageError
from service.heads.translate.model import TranslationModel
from service.models.registry import ModelRegistry

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Language:
    """A language on offer: its code as the models spell it, its English name, and where it can be translated to."""

    code: str
    name: str
    targets: tuple[str, ...]


class Languages:
    """The languages of a snapshot of models; take it as `registry.view(Languages)`."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.offered = _offered(registry.of_kind(TranslationModel))
        self._codes = {language.code.casefold(): language.code for language in self.offered}

    @property
    def codes(self) -> list[str]:
        """The codes on offer, sorted."""
        return [language.code for language in self.offered]

    def code(self, written: str, *, parameter: str) -> str:
        """The code as the models spell it, for any case; UnsupportedLanguageError for one that no model has."""
        known = self.find(written)
        if known is None:
            raise UnsupportedLanguageError(written, parameter=parameter)
        return known

    def find(self, written: str) -> str | None:
        """The same, or None where none knows it."""
        return self._codes.get(written.strip().casefold())


def choose_translator(registry: ModelRegistry, source: str, target: str, name: str | None = None) -> TranslationModel:
    """The model for a pair of known codes, or the model `name` if it translates that pair.

    Raises UnknownModelError, ModelTaskError for a model of another task, or UnavailableDirectionError.
    """
    for model in registry.candidates(TranslationModel, name):
        if (source, target) in model.directions:
            return model
    raise UnavailableDirectionError((language_name(source), source), (language_name(target), target))


@lru_cache(maxsize=1024)
def language_name(code: str) -> str:
    """The English name of a language code ("de" -> "German"); the code itself where there is no name for it."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _offered(models: tuple[TranslationModel, ...]) -> tuple[Language, ...]:
    """Every source language; each is also its own target, because clients ask for that and get their text back."""
    targets: dict[str, set[str]] = {}
    for model in models:
        for code in model.languages:
            targets.setdefault(code, {code})
        for source, target in model.directions:
            targets[source].add(target)
    return tuple(Language(code, language_name(code), tuple(sorted(targets[code]))) for code in sorted(targets))
