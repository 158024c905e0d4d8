"""From a folder of bundles to running models: the only part of the HTTP layer that knows bundles and ONNX Runtime."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import onnxruntime as ort

from export.bundle import BundleError, find_bundles, load_bundle
from model.tokenizer import TokenizerError
from service.engine.observer import Observer
from service.errors import StartupError
from service.loading.attention import load_attention
from service.loading.choices import Device, choose_cores, choose_device, usable_cores
from service.loading.common import Loading
from service.loading.embedding import load_embedding
from service.loading.generation import load_generation
from service.loading.translation import load_translation
from service.models import LoadedModel, ModelRegistry
from service.settings import Settings

logger = logging.getLogger(__name__)

LOADERS: dict[str, Callable[[Loading], LoadedModel]] = {
    "embed": load_embedding,
    "generate": load_generation,
    "translate": load_translation,
}
"""By task."""


def load_models(settings: Settings, observer: Callable[[str], Observer]) -> ModelRegistry:
    """Every bundle of `settings.bundles`, verified and ready; its engines are not yet started.

    Raises StartupError with what to do: no bundle, a damaged one, a device or a precision that cannot be had.
    """
    device = choose_device(settings.device, tuple(ort.get_available_providers()))
    try:
        paths = find_bundles(settings.bundles)
        if not paths:
            raise StartupError(
                f"there is no bundle in {settings.bundles.resolve()}: make one with `python -m export`, or name the "
                "folder that has some with POLYHEAD_BUNDLES (--bundles)"
            )
        return ModelRegistry([load_model(path, device, settings, observer) for path in paths])
    except (BundleError, TokenizerError) as error:
        raise StartupError(str(error)) from error


def load_model(path: Path, device: Device, settings: Settings, observer: Callable[[str], Observer]) -> LoadedModel:
    """The bundle in the folder `path` on `device`. Raises BundleError, TokenizerError or StartupError."""
    bundle = load_bundle(path)
    task = bundle.manifest.task
    if task not in LOADERS:
        raise StartupError(f"bundle {path} is for the task {task!r}, this version serves: {', '.join(LOADERS)}")
    cores = choose_cores(settings, task, device, usable_cores())
    loading = Loading(bundle, device, cores, settings, observer(bundle.name))
    model = dataclasses.replace(LOADERS[task](loading), attention=load_attention(loading))
    logger.info(
        "loaded model",
        extra={
            "model": model.name,
            "task": task,
            "device": device,
            "precision": model.precision,
            "loops": cores.num_loops,
            "threads": cores.num_threads,
        },
    )
    return model
