"""The loaded models, and how one is chosen: by name, or as the first of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from service.engine.core.observer import Observer
from service.errors import ModelTaskError, NoModelError, StartupError, UnknownModelError
from service.models.base import LoadedModel
from service.settings import NAMES_OF_NO_MODEL, Settings

ModelT = TypeVar("ModelT", bound=LoadedModel)
ViewT = TypeVar("ViewT")


class ModelRegistry:
    """A snapshot of the models, ordered by name; the first that fits a request serves it.

    It is immutable. When models are added or removed there is a new one, and a request keeps the one it began with.
    `aliases` are further names, each with that of a model.
    """

    def __init__(self, models: Sequence[LoadedModel], aliases: Mapping[str, str] | None = None) -> None:
        self.models = tuple(models)
        self.aliases = dict(aliases or {})
        names = [model.name for model in self.models]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise StartupError(f"two bundles have the name {', '.join(repeated)}: rename or remove one of them")
        self._by_name = {model.name: model for model in self.models}
        for alias, name in self.aliases.items():
            if name not in names or alias in names:
                fault = "is a loaded model's name" if alias in names else f"stands for {name!r}, which is not loaded"
                raise StartupError(
                    f"POLYHEAD_MODEL_ALIASES (--model-aliases): {alias!r} {fault}; loaded are {', '.join(names)}"
                )
        self._views: dict[Callable[[ModelRegistry], Any], Any] = {}

    def by_name(self, name: str) -> LoadedModel:
        """The model called `name`, or of which that is an alias; UnknownModelError lists those that are loaded."""
        found = self._by_name.get(self.aliases.get(name, name))
        if found is None:
            raise UnknownModelError(name, tuple(self._by_name))
        return found

    def find(self, name: object) -> LoadedModel | None:
        """The same, or None where there is none, or `name` is no text."""
        return self._by_name.get(self.aliases.get(name, name)) if isinstance(name, str) else None

    def of_kind(self, kind: type[ModelT]) -> tuple[ModelT, ...]:
        """The models for one task."""
        return tuple(model for model in self.models if isinstance(model, kind))

    def choose(self, kind: type[ModelT], name: str | None = None) -> ModelT:
        """The first model of a kind, or the one called `name`; NAMES_OF_NO_MODEL are as good as none.

        Raises UnknownModelError, ModelTaskError for a model of another task, or NoModelError.
        """
        for model in self.candidates(kind, name):
            return model
        raise NoModelError(kind.task)

    def candidates(self, kind: type[ModelT], name: str | None = None) -> tuple[ModelT, ...]:
        """All models of a kind, which may be none, or the one called `name`; raises as `choose` does."""
        if name is None or (name.casefold() in NAMES_OF_NO_MODEL and self.find(name) is None):
            return self.of_kind(kind)
        named = self.by_name(name)
        if not isinstance(named, kind):
            raise ModelTaskError(name, named.task, kind.task, tuple(other.name for other in self.of_kind(kind)))
        return (named,)

    def view(self, make: Callable[[ModelRegistry], ViewT]) -> ViewT:
        """What `make` makes of these models, such as the languages on offer: made once for each snapshot."""
        if make not in self._views:
            self._views[make] = make(self)
        return cast(ViewT, self._views[make])


class ModelLoader(Protocol):
    """Makes the registry at start; tests pass one with stand-in engines.

    `observer` gives the observer for the engine of a model, by the model's name. Engines are not yet started.
    """

    def __call__(self, settings: Settings, observer: Callable[[str], Observer]) -> ModelRegistry: ...
