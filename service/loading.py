"""From a folder of bundles to running models: the only file of the HTTP layer that knows bundles and ONNX Runtime."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import onnxruntime as ort

from export.bundle import Bundle, BundleError, find_bundles, load_bundle
from export.manifest import MANIFEST_NAME
from model.tokenizer import EOS, Tokenizer, TokenizerError, language_tag
from service.engine.engine import Engine
from service.engine.observer import Observer
from service.engine.waiting import EngineLimits
from service.errors import StartupError
from service.models import ModelRegistry, TranslationModel
from service.runtime.backend import OnnxBackend
from service.settings import Settings

logger = logging.getLogger(__name__)

Device = Literal["cpu", "cuda"]

PRECISIONS: dict[Device, tuple[str, ...]] = {"cpu": ("int8", "fp32"), "cuda": ("fp16", "fp32")}
"""What each device runs, the fastest first."""

_CUDA_PROVIDER = "CUDAExecutionProvider"


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


def load_model(path: Path, device: Device, settings: Settings, observer: Callable[[str], Observer]) -> TranslationModel:
    """The bundle in the folder `path` on `device`. Raises BundleError, TokenizerError or StartupError."""
    bundle = load_bundle(path)
    manifest = bundle.manifest
    if manifest.task != "translate" or manifest.languages is None:
        raise StartupError(f"bundle {path} is for the task {manifest.task!r}, this version serves: translate")
    precision = choose_precision(bundle, device, settings.precision)
    num_loops = choose_num_loops(settings, device, usable_cores())
    tokenizer = load_tokenizer(bundle)
    engine = Engine(
        _open_backend(bundle, precision, device, settings.threads),
        EngineLimits(
            max_rows=settings.max_rows,
            max_batch_tokens=settings.max_batch_tokens,
            max_waiting_requests=settings.max_waiting_requests,
            max_waiting_tokens=settings.max_waiting_tokens,
        ),
        num_loops=num_loops,
        observer=observer(manifest.name),
    )
    logger.info(
        "loaded model",
        extra={"model": manifest.name, "device": device, "precision": precision, "loops": num_loops},
    )
    return TranslationModel(
        name=manifest.name,
        languages=manifest.languages.codes,
        directions=frozenset(manifest.languages.directions),
        tokenizer=tokenizer,
        engine=engine,
        precision=precision,
        device=device,
        max_source_tokens=min(settings.max_source_tokens, manifest.limits.max_source_tokens),
        max_new_tokens=min(settings.max_new_tokens, manifest.limits.max_target_tokens),
        # A step of beam search chooses among twice as many candidates as the beam is wide.
        max_beam_size=max(1, min(settings.max_beam_size, manifest.decoding.num_candidates // 2)),
        default_beam_size=manifest.decoding.beam_size,
        default_length_penalty=manifest.decoding.length_penalty,
        info={
            "sha": hashlib.sha256((path / MANIFEST_NAME).read_bytes()).hexdigest(),
            "architecture": bundle.config.architecture,
            "precisions": list(bundle.precisions),
            "weights": manifest.weights,
            "training": manifest.training,
        },
    )


def choose_device(wanted: Literal["auto", "cpu", "cuda"], providers: tuple[str, ...]) -> Device:
    """The device to run on; StartupError when CUDA is asked for and ONNX Runtime was built without it."""
    if wanted == "auto":
        return "cuda" if _CUDA_PROVIDER in providers else "cpu"
    if wanted == "cuda" and _CUDA_PROVIDER not in providers:
        raise StartupError(
            f"POLYHEAD_DEVICE (--device) is 'cuda', but this ONNX Runtime offers only {', '.join(providers)}: install "
            "polyhead[gpu] in place of polyhead[cpu] (make serve GPU=1), or choose cpu"
        )
    return wanted


def choose_precision(bundle: Bundle, device: Device, wanted: str) -> str:
    """The precision to load; StartupError when the bundle lacks it or the device does not run it."""
    usable = [precision for precision in PRECISIONS[device] if precision in bundle.precisions]
    if wanted == "auto" and usable:
        return usable[0]
    if wanted in usable:
        return wanted
    raise StartupError(
        f"bundle {bundle.path} cannot run in the precision {wanted!r} on {device}: it holds "
        f"{', '.join(bundle.precisions)}, and {device} runs {', '.join(PRECISIONS[device])}"
    )


def choose_num_loops(settings: Settings, device: Device, num_cores: int) -> int:
    """Loops of one engine: those asked for, else one on a GPU, and on the CPU as many as the cores carry."""
    if settings.loops:
        return settings.loops
    return 1 if device == "cuda" else max(1, num_cores // settings.threads)


def usable_cores() -> int:
    """The CPU cores that this process may use, which in a container can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer; StartupError when it does not fit the model, TokenizerError when a token is missing."""
    tokenizer = Tokenizer.load(bundle.tokenizer_path)
    if tokenizer.vocab_size > bundle.config.vocab_size:
        raise StartupError(
            f"bundle {bundle.path} is inconsistent: its tokenizer has {tokenizer.vocab_size} tokens, its model "
            f"{bundle.config.vocab_size}; export it again"
        )
    for token in (EOS, *(language_tag(target) for _, target in sorted(_directions(bundle)))):
        tokenizer.token_id(token)
    return tokenizer


def _directions(bundle: Bundle) -> tuple[tuple[str, str], ...]:
    return bundle.manifest.languages.directions if bundle.manifest.languages else ()


def _open_backend(bundle: Bundle, precision: str, device: Device, num_threads: int) -> OnnxBackend:
    try:
        return OnnxBackend(bundle, precision, device, num_threads)
    except Exception as error:  # ONNX Runtime raises classes of its own for each kind of fault
        raise StartupError(
            f"ONNX Runtime cannot load bundle {bundle.path} in {precision} on {device}: {error}"
        ) from error
