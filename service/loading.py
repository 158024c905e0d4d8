"""From the bundles on disk to models ready to run: which precision, which device, how many loops."""

from __future__ import annotations

import os
from collections.abc import Callable

import onnxruntime as ort

from export.bundle import Bundle, BundleError, find_bundles, load_bundle
from model.tokenizer import Tokenizer, TokenizerError
from service.engine.engine import Engine
from service.engine.observer import Observer
from service.engine.waiting import EngineLimits
from service.errors import StartupError
from service.models import LoadedModel, ModelRegistry
from service.runtime.backend import OnnxBackend
from service.settings import Settings

_PREFERRED = {"cpu": ("int8", "fp32"), "cuda": ("fp16", "fp32")}
"""Precisions that a device computes in, the fastest first."""


def load_models(settings: Settings, observer: Callable[[str], Observer]) -> ModelRegistry:
    """Every bundle of the folder, verified and loaded. Raises StartupError with one line that says what to do."""
    device = choose_device(settings.device)
    try:
        paths = find_bundles(settings.bundles)
        if not paths:
            raise StartupError(f"{settings.bundles} holds no bundle: make one with `python -m export CHECKPOINT BUNDLE`")
        return ModelRegistry([_load(load_bundle(path), settings, device, observer) for path in paths])
    except (BundleError, TokenizerError) as error:
        raise StartupError(str(error)) from error


def choose_device(wanted: str) -> str:
    """"cuda" where ONNX Runtime was installed with CUDA and it was not ruled out, else "cpu"."""
    has_cuda = "CUDAExecutionProvider" in ort.get_available_providers()
    if wanted == "cuda" and not has_cuda:
        raise StartupError(
            "the device is cuda, but this ONNX Runtime has no CUDA provider: install the gpu extra (make serve GPU=1), "
            "or set POLYHEAD_DEVICE to cpu or auto"
        )
    if wanted == "auto":
        return "cuda" if has_cuda else "cpu"
    return wanted


def choose_precision(bundle: Bundle, wanted: str, device: str) -> str:
    """The precision asked for, or for "auto" the device's fastest that the bundle holds."""
    usable = [precision for precision in _PREFERRED[device] if precision in bundle.precisions]
    if wanted == "auto" and usable:
        return usable[0]
    if wanted in usable:
        return wanted
    raise StartupError(
        f"bundle {bundle.path} cannot be served in {wanted} on {device}: it holds {', '.join(bundle.precisions)}, "
        f"and {device} computes in {', '.join(_PREFERRED[device])}"
    )


def _load(bundle: Bundle, settings: Settings, device: str, observer: Callable[[str], Observer]) -> LoadedModel:
    manifest = bundle.manifest
    if manifest.task != "translate" or manifest.languages is None:
        raise StartupError(f"bundle {bundle.path} is for {manifest.task}, this version serves translate")
    precision = choose_precision(bundle, settings.precision, device)
    backend = OnnxBackend(bundle, precision, device, settings.threads)
    limits = EngineLimits(
        max_rows=settings.max_rows,
        max_batch_tokens=settings.max_batch_tokens,
        max_waiting_requests=settings.max_waiting_requests,
        max_waiting_tokens=settings.max_waiting_tokens,
    )
    return LoadedModel(
        name=bundle.name,
        task=manifest.task,
        languages=manifest.languages.codes,
        directions=frozenset(manifest.languages.directions),
        tokenizer=Tokenizer.load(bundle.tokenizer_path),
        engine=Engine(backend, limits, choose_loops(settings, device), observer(bundle.name)),
        precision=precision,
        device=device,
        max_source_tokens=min(settings.max_source_tokens, backend.max_source_tokens),
        max_new_tokens=min(settings.max_new_tokens, backend.max_target_tokens),
        max_beam_size=min(settings.max_beam_size, backend.num_candidates // 2),
        default_beam_size=min(manifest.decoding.beam_size, settings.max_beam_size, backend.num_candidates // 2),
        default_length_penalty=manifest.decoding.length_penalty,
        info={
            "architecture": bundle.config.architecture,
            "precisions": list(bundle.precisions),
            "weights": manifest.weights,
            "training": manifest.training,
        },
    )


def choose_loops(settings: Settings, device: str) -> int:
    """The loops asked for; by default one on a GPU, and on a processor as many as its cores carry."""
    if settings.loops:
        return settings.loops
    if device == "cuda":
        return 1
    return max(1, len(os.sched_getaffinity(0)) // settings.threads)
