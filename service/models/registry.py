"""The loaded models, and how one is chosen: by name, or as the first of its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from service.engine.core.observer import Observer
from service.errors import ModelTaskError, NoModelError, StartupError, UnknownModelError
from service.models.base import LoadedModel
from service.settings import Settings

ModelT = TypeVar("ModelT", bound=LoadedModel)
ViewT = TypeVar("ViewT")


class ModelRegistry:
    """A snapshot of the models, ordered by name; the first that fits a request serves it.

    It is immutable. When models are added or removed there is a new one, and a request keeps the one it began with.
    """

    def __init__(self, models: Sequence[LoadedModel]) -> None:
        self.models = tuple(models)
        names = [model.name for model in self.models]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise StartupError(f"two bundles have the name {', '.join(repeated)}: rename or remove one of them")
        self._by_name = {model.name: model for model in self.models}
        self._views: dict[Callable[[ModelRegistry], Any], Any] = {}

    def by_name(self, name: str) -> LoadedModel:
        """The model called `name`; UnknownModelError lists those that are loaded."""
        if name not in self._by_name:
            raise UnknownModelError(name, tuple(self._by_name))
        return self._by_name[name]

    def of_kind(self, kind: type[ModelT]) -> tuple[ModelT, ...]:
        """The models for one task."""
        return tuple(model for model in self.models if isinstance(model, kind))

    def choose(self, kind: type[ModelT], name: str | None = None) -> ModelT:
        """The first model of a kind, or the one called `name`.

        Raises UnknownModelError, ModelTaskError for a model of another task, or NoModelError.
        """
        if name is None:
            for model in self.models:
                if isinstance(model, kind):
                    return model
            raise NoModelError(kind.task)
        named = self.by_name(name)
        if not isinstance(named, kind):
            raise ModelTaskError(name, named.task, kind.task, tuple(other.name for other in self.of_kind(kind)))
        return named

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
