"""What loading a bundle of any task has in common."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from export.bundle import Bundle
from export.manifest import MANIFEST_NAME
from model.tokenizer import Tokenizer
from service.engine.observer import Observer
from service.errors import StartupError
from service.loading.choices import Cores, Device
from service.settings import Settings

BackendT = TypeVar("BackendT")


class Loading(NamedTuple):
    """A verified bundle, and what it is to be loaded with."""

    bundle: Bundle
    device: Device
    cores: Cores
    settings: Settings
    observer: Observer


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer; TokenizerError when it cannot be read, StartupError when it does not fit the model."""
    tokenizer = Tokenizer.load(bundle.tokenizer_path)
    if tokenizer.vocab_size > bundle.config.vocab_size:
        raise StartupError(
            f"bundle {bundle.path} is inconsistent: its tokenizer has {tokenizer.vocab_size} tokens, its model "
            f"{bundle.config.vocab_size}; export it again"
        )
    return tokenizer


def open_backend(backend: Callable[[Bundle, str, str, int], BackendT], loading: Loading, precision: str) -> BackendT:
    """`backend` of the bundle; StartupError when the runtime cannot load it."""
    bundle, device = loading.bundle, loading.device
    try:
        return backend(bundle, precision, device, loading.cores.num_threads)
    except Exception as error:  # ONNX Runtime raises classes of its own for each kind of fault
        raise StartupError(
            f"ONNX Runtime cannot load bundle {bundle.path} in {precision} on {device}: {error}"
        ) from error


def model_info(bundle: Bundle) -> dict[str, Any]:
    """What GET /info says of a model of any task."""
    return {
        "sha": hashlib.sha256((bundle.path / MANIFEST_NAME).read_bytes()).hexdigest(),
        "architecture": bundle.config.architecture,
        "precisions": list(bundle.precisions),
        "weights": bundle.manifest.weights,
        "training": bundle.manifest.training,
    }
