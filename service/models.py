"""The loaded models, one class for each task, and how one is chosen: by name, by task, or by language pair."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Protocol, TypeVar

from babel import Locale, UnknownLocaleError

from model.tokenizer import EOS, Tokenizer, language_tag
from service.attention.support import AttentionSupport
from service.engine.attention import AttentionRequest, AttentionResult
from service.engine.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.generation.types import GenerationRequest, PromptToken, TokenEvent
from service.engine.observer import Observer
from service.engine.types import DecodingOptions, EngineStats, GenerationResult, InferenceRequest
from service.errors import (
    ModelTaskError,
    NoModelError,
    StartupError,
    UnavailableDirectionError,
    UnknownModelError,
    UnsupportedLanguageError,
)
from service.settings import Settings

AUTO = "auto"

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResultT = TypeVar("ResultT")


class EngineControl(Protocol):
    """What the service needs of every engine, whatever it computes."""

    def stats(self) -> EngineStats: ...
    def start(self) -> None: ...
    def drain(self, timeout_seconds: float) -> bool:
        """Take no more, answer what was taken; False when time ran out before."""
        ...

    def close(self) -> None: ...


class Engine(EngineControl, Protocol[RequestT_contra, ResultT]):
    """An engine that answers requests as a whole: those of `service.engine`, or a stand-in in tests."""

    async def run(self, requests: Sequence[RequestT_contra]) -> list[ResultT]:
        """Results in the order of `requests`, all admitted or none; cancelling the coroutine cancels the work."""
        ...


TranslationEngine = Engine[InferenceRequest, GenerationResult]
EmbeddingEngine = Engine[EmbeddingRequest, EmbeddingResult]
AttentionEngine = Engine[AttentionRequest, AttentionResult]


class TokenStream(Protocol):
    """The tokens of one request as they come; see `service.engine.generation.stream`."""

    queue_seconds: float | None
    prompt_log_probs: tuple[PromptToken, ...] | None

    def __aiter__(self) -> TokenStream: ...
    async def __anext__(self) -> TokenEvent: ...
    async def aclose(self) -> None:
        """Stop: what the request took is free at the engine's next step."""
        ...


class GenerationEngine(EngineControl, Protocol):
    """An engine that continues prompts, one token after the other."""

    async def open(self, request: GenerationRequest) -> TokenStream:
        """The tokens of a request that has been admitted."""
        ...

    async def search(self, request: GenerationRequest) -> GenerationResult:
        """The best hypotheses of a beam search; cancelling the coroutine cancels the work."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoadedModel(ABC):
    """One model, ready to run: what the manifest says that the service needs, its tokenizer and its engine."""

    task: ClassVar[str]
    """As the manifest spells it."""

    name: str
    tokenizer: Tokenizer
    engine: EngineControl
    precision: str
    device: str
    info: Mapping[str, Any] = field(default_factory=dict)
    """What GET /info adds for this model: sizes, revision, where the weights come from."""
    attention: AttentionSupport | None = None
    """None where the bundle has no attention graph."""

    @property
    def engines(self) -> dict[str, EngineControl]:
        """All its engines, by names that no other model's have."""
        attention = {} if self.attention is None else {f"{self.name}/attention": self.attention.engine}
        return {self.name: self.engine, **attention}

    @abstractmethod
    async def probe(self, deadline: float) -> None:
        """Run the smallest request there is, for GET /health; raises what the engine raises.

        `deadline` is on `time.monotonic()`'s clock.
        """


@dataclass(frozen=True, kw_only=True)
class TranslationModel(LoadedModel):
    """A model that translates the pairs in `directions`, (source, target), between its `languages`."""

    task: ClassVar[str] = "translate"

    engine: TranslationEngine
    languages: tuple[str, ...]
    directions: frozenset[tuple[str, str]]
    max_source_tokens: int
    max_new_tokens: int
    max_beam_size: int
    default_beam_size: int = 1
    default_length_penalty: float = 1.0

    async def probe(self, deadline: float) -> None:
        """No text, one token of output."""
        target = self.languages[0] if not self.directions else min(self.directions)[1]
        input_ids = (self.tokenizer.token_id(language_tag(target)), self.tokenizer.token_id(EOS))
        await self.engine.run([InferenceRequest(input_ids, DecodingOptions(max_new_tokens=1), deadline)])


@dataclass(frozen=True, kw_only=True)
class EmbeddingModel(LoadedModel):
    """A model that turns a text into one vector of `dimensions` numbers, or one for each token.

    `max_input_tokens` counts the `num_special_tokens` that the tokenizer puts around a text. `pooling` is how the
    graph makes one vector out of many: cls, mean or last_token. `prompts` are prefixes by name.
    """

    task: ClassVar[str] = "embed"

    engine: EmbeddingEngine
    max_input_tokens: int
    dimensions: int
    pooling: str
    num_special_tokens: int
    normalize: bool
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None

    async def probe(self, deadline: float) -> None:
        """A single token."""
        await self.engine.run([EmbeddingRequest((0,), deadline=deadline)])


@dataclass(frozen=True, kw_only=True)
class GenerationModel(LoadedModel):
    """A model that continues a text.

    `max_total_tokens` bounds a prompt and its continuation together. `max_top_tokens` is how many of the likeliest
    tokens a step can name. `chat_template` is the Jinja template that makes a prompt of a conversation, and
    `special_tokens` are the texts that it knows by name, such as bos_token.
    """

    task: ClassVar[str] = "generate"

    engine: GenerationEngine
    max_total_tokens: int
    eos_ids: tuple[int, ...] = ()
    max_beam_size: int = 1
    max_top_tokens: int = 5
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    async def probe(self, deadline: float) -> None:
        """One token after a single one."""
        stream = await self.engine.open(GenerationRequest(input_ids=(0,), max_new_tokens=1, deadline=deadline))
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()


ModelT = TypeVar("ModelT", bound=LoadedModel)


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
        self.loaded_at = int(time.time())  # seconds since 1970
        names = [model.name for model in self.models]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise StartupError(f"two bundles have the name {', '.join(repeated)}: rename or remove one of them")
        self._by_name = {model.name: model for model in self.models}
        self._translators = self.of_kind(TranslationModel)
        self.languages = self._offer_languages()
        self._codes = {language.code.casefold(): language.code for language in self.languages}

    def by_name(self, name: str) -> LoadedModel:
        """The model called `name`; UnknownModelError lists those that are loaded."""
        if name not in self._by_name:
            raise UnknownModelError(name, tuple(self._by_name))
        return self._by_name[name]

    def of_kind(self, kind: type[ModelT]) -> tuple[ModelT, ...]:
        """The models for one task."""
        return tuple(model for model in self.models if isinstance(model, kind))

    def embedder(self, name: str | None = None) -> EmbeddingModel:
        """The first embedding model, or the one called `name`.

        Raises UnknownModelError, ModelTaskError for a model of another task, or NoModelError.
        """
        return self._choose(EmbeddingModel, name)

    def generator(self, name: str | None = None) -> GenerationModel:
        """The first model that continues texts, or the one called `name`; raises as `embedder` does."""
        return self._choose(GenerationModel, name)

    def language(self, code: str, *, parameter: str) -> str:
        """The code as the models spell it, however the client wrote it; UnsupportedLanguageError if none knows it."""
        known = self._codes.get(code.strip().casefold())
        if known is None:
            raise UnsupportedLanguageError(code, parameter=parameter)
        return known

    def translator(self, source: str, target: str, name: str | None = None) -> TranslationModel:
        """The model for a pair of known codes, or the model `name` if it translates that pair.

        Raises UnknownModelError, ModelTaskError for a model of another task, or UnavailableDirectionError.
        """
        candidates = self._translators if name is None else (self._choose(TranslationModel, name),)
        for model in candidates:
            if (source, target) in model.directions:
                return model
        raise UnavailableDirectionError((language_name(source), source), (language_name(target), target))

    def _choose(self, kind: type[ModelT], name: str | None) -> ModelT:
        candidates = self.of_kind(kind)
        if name is not None:
            model = self.by_name(name)
            if not isinstance(model, kind):
                raise ModelTaskError(name, model.task, kind.task, tuple(other.name for other in candidates))
            return model
        if not candidates:
            raise NoModelError(kind.task)
        return candidates[0]

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
