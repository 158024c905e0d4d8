"""The loaded models and how one is chosen: by name, or by task and language pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from babel import Locale, UnknownLocaleError

from model.tokenizer import Tokenizer
from service.engine.observer import Observer
from service.engine.types import EngineStats, GenerationResult, InferenceRequest
from service.errors import StartupError, UnavailableDirectionError, UnknownModelError, UnsupportedLanguageError
from service.settings import Settings

AUTO = "auto"


class Engine(Protocol):
    """What the service needs of an engine: `service.engine.Engine`, or a stand-in in tests."""

    async def run(self, requests: Sequence[InferenceRequest]) -> list[GenerationResult]:
        """Results in the order of `requests`, all admitted or none; cancelling the coroutine cancels the work."""
        ...

    def stats(self) -> EngineStats: ...
    def start(self) -> None: ...
    def drain(self, timeout_seconds: float) -> bool:
        """Take no more, answer what was taken; False when time ran out before."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class LoadedModel:
    """One model, ready to run: what the manifest says that the service needs, its tokenizer and its engine."""

    name: str
    task: str
    languages: tuple[str, ...]
    directions: frozenset[tuple[str, str]]
    tokenizer: Tokenizer
    engine: Engine
    precision: str
    device: str
    max_source_tokens: int
    max_new_tokens: int
    max_beam_size: int
    default_beam_size: int = 1
    default_length_penalty: float = 1.0
    info: Mapping[str, Any] = field(default_factory=dict)
    """What GET /info adds for this model: sizes, revision, where the weights come from."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language on offer: its code as the models spell it, its English name, and where it can be translated to."""

    code: str
    name: str
    targets: tuple[str, ...]


class ModelLoader(Protocol):
    """Makes the registry at start; tests pass one with stand-in engines.

    `observer` gives the observer for the engine of a model, by the model's name. Engines are not yet started.
    """

    def __call__(self, settings: Settings, observer: Callable[[str], Observer]) -> ModelRegistry: ...


class ModelRegistry:
    """The loaded models in the order of their names; the first that fits a request serves it."""

    def __init__(self, models: Sequence[LoadedModel]) -> None:
        self.models = tuple(models)
        names = [model.name for model in self.models]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise StartupError(f"two bundles have the name {', '.join(repeated)}: rename or remove one of them")
        self._by_name = {model.name: model for model in self.models}
        self._translators = tuple(model for model in self.models if model.task == "translate")
        self.languages = self._offer_languages()
        self._codes = {language.code.casefold(): language.code for language in self.languages}

    def by_name(self, name: str) -> LoadedModel:
        """The model called `name`; UnknownModelError lists those that are loaded."""
        if name not in self._by_name:
            raise UnknownModelError(name, tuple(self._by_name))
        return self._by_name[name]

    def language(self, code: str, *, parameter: str) -> str:
        """The code as the models spell it, however the client wrote it; UnsupportedLanguageError if none knows it."""
        known = self._codes.get(code.strip().casefold())
        if known is None:
            raise UnsupportedLanguageError(code, parameter=parameter)
        return known

    def translator(self, source: str, target: str, name: str | None = None) -> LoadedModel:
        """The model for a pair of known codes, or the model `name` if it translates that pair.

        Raises UnknownModelError or UnavailableDirectionError.
        """
        candidates = self._translators if name is None else (self.by_name(name),)
        for model in candidates:
            if (source, target) in model.directions:
                return model
        raise UnavailableDirectionError((language_name(source), source), (language_name(target), target))

    def _offer_languages(self) -> tuple[Language, ...]:
        """Every source language; each is also its own target, because clients ask for that and get their text back."""
        targets: dict[str, set[str]] = {}
        for model in self._translators:
            for code in model.languages:
                targets.setdefault(code, {code})
            for source, target in model.directions:
                targets[source].add(target)
        return tuple(Language(code, language_name(code), tuple(sorted(targets[code]))) for code in sorted(targets))


@lru_cache(maxsize=1024)
def language_name(code: str) -> str:
    """The English name of a language code ("de" -> "German"); the code itself where there is no name for it."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code
