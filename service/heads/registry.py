"""The heads of this server, for everything that concerns all of them."""

from __future__ import annotations

from collections.abc import Callable

from service.engine.core.observer import Observer
from service.heads.attend.head import ATTEND
from service.heads.embed.head import EMBED
from service.heads.generate.head import GENERATE
from service.heads.head import Companions, TaskModels
from service.heads.translate.head import TRANSLATE
from service.models import loading
from service.models.base import LoadedModel
from service.models.registry import ModelRegistry
from service.settings import Settings

HEADS = (EMBED, GENERATE, TRANSLATE, ATTEND)
"""In order of precedence: the first that has a model serves requests that do not name a task."""

TASKS: dict[str, TaskModels] = {head.models.kind.task: head.models for head in HEADS if head.models is not None}
COMPANIONS: tuple[Companions, ...] = tuple(head.companions for head in HEADS if head.companions is not None)


def load_models(settings: Settings, observer: Callable[[str], Observer]) -> ModelRegistry:
    """Every bundle of `settings.bundles`, for the tasks of the heads; see `service.models.loading.load_models`."""
    return loading.load_models(settings, TASKS, COMPANIONS, observer)


def default_model(registry: ModelRegistry) -> LoadedModel:
    """The first model of the first head that has one."""
    return next(model for task in TASKS.values() for model in registry.of_kind(task.kind))
