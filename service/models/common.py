"""What loading has in common for bundles of every task."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from export.bundle import Bundle
from export.heads import Decoding
from export.manifest import MANIFEST_NAME, TokenizerSpec
from model.piece_tokenizer import PieceTokenizer
from model.tokenizer import Tokenizer
from service.engine.core.observer import Observer
from service.errors import StartupError
from service.models.choices import Cores, Device
from service.runtime.step_graphs import ObserveRun
from service.settings import Settings

logger = logging.getLogger(__name__)

_NOT_DECODED = ("forced_begin_token_id", "bad_token_sequences", "no_repeat_ngram_size")
"""Settings of `Decoding` that a head may not apply, and without which other tokens would be generated.

Of the others, suppressed tokens are left out by the graph or the engine; an end token that is forced at the longest
length is cut off again; the beam rules decide only between likely hypotheses.
"""

BackendT = TypeVar("BackendT")


class Loading(NamedTuple):
    """A verified bundle, the name of the model that it becomes, and what it is to be loaded with."""

    bundle: Bundle
    name: str
    device: Device
    cores: Cores
    settings: Settings
    observer: Observer


def load_tokenizers(bundle: Bundle) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of inputs and of outputs, which may be one.

    TokenizerError when one cannot be read, StartupError when it does not fit the model.
    """
    specs, config = bundle.manifest.tokenizers, bundle.config
    if specs.shared is not None:
        tokenizer = _load_tokenizer(bundle, specs.shared, config.vocab_size)
        return tokenizer, tokenizer
    source = _load_tokenizer(bundle, specs.encoder, config.num_source_tokens)
    return source, _load_tokenizer(bundle, specs.decoder, config.vocab_size)


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The one tokenizer of a bundle, or that of inputs; errors as in `load_tokenizers`."""
    return load_tokenizers(bundle)[0]


def _load_tokenizer(bundle: Bundle, spec: TokenizerSpec, vocab_size: int) -> Tokenizer:
    path = bundle.path / spec.file
    if spec.pieces is None:
        tokenizer = Tokenizer.load(path)
    else:
        tokenizer = PieceTokenizer.load_pieces(path, bundle.path / spec.pieces, spec.unknown_id)
    _check_tokenizer(bundle, tokenizer, vocab_size)
    return tokenizer


def _check_tokenizer(bundle: Bundle, tokenizer: Tokenizer, vocab_size: int) -> None:
    """StartupError for ids beyond the model's vocabulary, TextCutError for rules that fail on simple texts."""
    tokenizer.check()
    if tokenizer.largest_id >= vocab_size:
        raise StartupError(
            f"bundle {bundle.path} is inconsistent: its tokenizer gives ids up to {tokenizer.largest_id}, its model "
            f"has {vocab_size} tokens; export it again"
        )


def check_decoding(bundle: Bundle, decoding: Decoding) -> None:
    """StartupError for decoding that is not applied: the outputs would be wrong."""
    plain = Decoding()
    asked = [name for name in _NOT_DECODED if getattr(decoding, name) != getattr(plain, name)]
    if asked:
        raise StartupError(
            f"bundle {bundle.path} asks for {', '.join(asked)} in its section decoding, which this version of polyhead "
            "does not do"
        )


def check_onnxruntime(bundle: Bundle, found: str) -> None:
    """StartupError where the bundle's graphs need a later ONNX Runtime than the version `found`."""
    wanted = bundle.manifest.min_onnxruntime
    if _numbers(found) < _numbers(wanted):
        raise StartupError(
            f"bundle {bundle.path} needs ONNX Runtime {wanted} or later, this is {found}: install a later one"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release, of 1.31.0rc1 1 and 31: zeros at the end do not count."""
    numbers = [int(part) for part in re.findall(r"\d+", re.split(r"[a-z+-]", version, maxsplit=1)[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def open_backend(backend: Callable[[Bundle, str, str, int], BackendT], loading: Loading, precision: str) -> BackendT:
    """`backend` of the bundle; StartupError when the runtime cannot load it."""
    bundle, device = loading.bundle, loading.device
    try:
        return backend(bundle, precision, device, loading.cores.num_threads)
    except Exception as error:  # ONNX Runtime raises classes of its own for each kind of fault
        raise StartupError(
            f"ONNX Runtime cannot load bundle {bundle.path} in {precision} on {device}: {error}"
        ) from error


def step_observer(loading: Loading) -> ObserveRun | None:
    """The callback for how each decode step ran; with one, the backend records steps as CUDA graphs."""
    if loading.device != "cuda" or not loading.settings.cuda_graphs:
        return None
    if loading.cores.num_loops > 1:  # a session that records is for one thread
        logger.warning(
            "CUDA graphs are off: they need one loop",
            extra={"model": loading.bundle.name, "loops": loading.cores.num_loops},
        )
        return None
    return loading.observer.on_device_step


def model_info(bundle: Bundle) -> dict[str, Any]:
    """What GET /info has for a model of any task."""
    manifest = bundle.manifest
    file, stored = next(iter(manifest.weights.items()))
    return {
        "sha": hashlib.sha256((bundle.path / MANIFEST_NAME).read_bytes()).hexdigest(),
        "architecture": bundle.config.architecture,
        "precisions": list(bundle.precisions),
        "weights": {"dtype": stored.dtype, "sha256": manifest.files[file].sha256, **manifest.card},
        "training": manifest.training,
    }
