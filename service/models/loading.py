"""From a folder of bundles to models, by the loaders of the heads."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import onnxruntime as ort

from export.bundle import BundleError, find_bundles, load_bundle
from model.tokenizer import TokenizerError
from service.engine.core.observer import Observer
from service.errors import StartupError
from service.models.base import Companion, LoadedModel
from service.models.choices import Device, choose_cores, choose_device, usable_cores
from service.models.common import Loading, check_onnxruntime
from service.models.registry import ModelRegistry
from service.settings import Settings

logger = logging.getLogger(__name__)


class TaskLoader(Protocol):
    """How the models of one task are loaded."""

    @property
    def load(self) -> Callable[[Loading], LoadedModel]: ...

    @property
    def one_loop(self) -> bool:
        """Whether all cores work on one step together, where the settings do not say."""
        ...


class CompanionLoader(Protocol):
    """How a companion of a model is loaded from its bundle."""

    @property
    def load(self) -> Callable[[Loading], Companion | None]: ...


def load_models(
    settings: Settings,
    tasks: Mapping[str, TaskLoader],
    companions: Sequence[CompanionLoader],
    observer: Callable[[str], Observer],
) -> ModelRegistry:
    """Every bundle of `settings.bundles`, verified and ready, for one of `tasks`; its engines are not yet started.

    Raises StartupError with what to do: no bundle, a damaged one, an unavailable device or precision.
    """
    device = choose_device(settings.device, tuple(ort.get_available_providers()))
    try:
        paths = find_bundles(settings.bundles)
        if not paths:
            raise StartupError(
                f"there is no bundle in {settings.bundles.resolve()}: make one with `python -m export`, or name the "
                "folder that has some with POLYHEAD_BUNDLES (--bundles)"
            )
        heads = [load_heads(path, device, settings, tasks, companions, observer) for path in paths]
        return ModelRegistry([model for models in heads for model in models], settings.aliases)
    except (BundleError, TokenizerError) as error:
        raise StartupError(str(error)) from error


def load_heads(
    path: Path,
    device: Device,
    settings: Settings,
    tasks: Mapping[str, TaskLoader],
    companions: Sequence[CompanionLoader],
    observer: Callable[[str], Observer],
) -> list[LoadedModel]:
    """A model for each head of the bundle in the folder `path` that is in `tasks`.

    The first has the bundle's name, the others that and their head's. Raises BundleError, TokenizerError or
    StartupError.
    """
    bundle = load_bundle(path)
    check_onnxruntime(bundle, ort.__version__)
    heads = [task for task in bundle.manifest.heads.present() if task in tasks]
    if not heads:
        raise StartupError(
            f"bundle {path} is for {', '.join(bundle.manifest.heads.present())}, this version serves: "
            f"{', '.join(sorted(tasks))}"
        )
    models = list[LoadedModel]()
    for task in heads:
        name = bundle.name if not models else f"{bundle.name}-{task}"
        cores = choose_cores(settings, device, usable_cores(), one_loop=tasks[task].one_loop)
        models.append(
            _load_head(Loading(bundle, name, device, cores, settings, observer(name)), tasks[task], companions)
        )
    return models


def _load_head(loading: Loading, task: TaskLoader, companions: Sequence[CompanionLoader]) -> LoadedModel:
    model = task.load(loading)
    found = [companion.load(loading) for companion in companions]
    model = dataclasses.replace(model, companions=tuple(companion for companion in found if companion is not None))
    logger.info(
        "loaded model",
        extra={
            "model": model.name,
            "task": model.task,
            "device": model.device,
            "precision": model.precision,
            "loops": loading.cores.num_loops,
            "threads": loading.cores.num_threads,
        },
    )
    return model
