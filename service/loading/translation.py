"""A translation bundle as a running model."""

from __future__ import annotations

from export.bundle import Bundle, BundleError
from model.tokenizer import EOS, Tokenizer, language_tag
from service.engine.engine import Engine
from service.engine.waiting import EngineLimits
from service.loading.choices import Device, choose_precision
from service.loading.common import Loading, load_tokenizer, model_info, open_backend
from service.models import TranslationModel
from service.runtime.backend import OnnxBackend

_OVERHEAD_TOKENS: dict[Device, int] = {"cpu": 24, "cuda": 1024}
"""docs/decisions/0013-encoder-batches.md: measured on a processor; on a GPU a batch is mostly starting kernels."""


def load_translation(loading: Loading) -> TranslationModel:
    """Raises BundleError, TokenizerError or StartupError."""
    bundle, device, cores, settings, observer = loading
    manifest, languages = bundle.manifest, bundle.manifest.languages
    if languages is None:
        raise BundleError(f"bundle {bundle.path} names no languages; export it again")
    precision = choose_precision(bundle, device, settings.precision)
    engine = Engine(
        open_backend(OnnxBackend, loading, precision),
        EngineLimits(
            max_rows=settings.max_rows,
            max_batch_tokens=settings.max_batch_tokens,
            max_waiting_requests=settings.max_waiting_requests,
            max_waiting_tokens=settings.max_waiting_tokens,
            overhead_tokens=_OVERHEAD_TOKENS[device],
        ),
        num_loops=cores.num_loops,
        observer=observer,
    )
    return TranslationModel(
        name=manifest.name,
        languages=languages.codes,
        directions=frozenset(languages.directions),
        tokenizer=_load_tokenizer(bundle, [target for _, target in languages.directions]),
        engine=engine,
        precision=precision,
        device=device,
        max_source_tokens=min(settings.max_source_tokens, manifest.limits.max_source_tokens),
        max_new_tokens=min(settings.max_new_tokens, manifest.limits.max_target_tokens),
        # A step of beam search chooses among twice as many candidates as the beam is wide.
        max_beam_size=max(1, min(settings.max_beam_size, manifest.decoding.num_candidates // 2)),
        default_beam_size=manifest.decoding.beam_size,
        default_length_penalty=manifest.decoding.length_penalty,
        info=model_info(bundle),
    )


def _load_tokenizer(bundle: Bundle, targets: list[str]) -> Tokenizer:
    """The tokenizer, with every token that a request will need."""
    tokenizer = load_tokenizer(bundle)
    for token in (EOS, *map(language_tag, sorted(set(targets)))):
        tokenizer.token_id(token)
    return tokenizer
