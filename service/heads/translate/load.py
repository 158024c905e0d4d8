"""A translation bundle as a running model."""

from __future__ import annotations

from functools import partial

from export.bundle import Bundle
from export.heads import Decoding
from model.tokenizer import Tokenizer
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.types import DecodingOptions
from service.heads.translate.model import TranslationModel
from service.models.choices import GREEDY_STEPS, Device, choose_cache_bytes, choose_precision
from service.models.common import Loading, load_tokenizers, model_info, open_backend, step_observer
from service.runtime.decoder import OnnxDecoderBackend
from service.settings import Settings

_OVERHEAD_TOKENS: dict[Device, int] = {"cpu": 24, "cuda": 1024}
"""docs/decisions/0013-encoder-batches.md: measured on a CPU; on a GPU a batch is dominated by kernel launches."""


def load_translation(loading: Loading) -> TranslationModel:
    """Raises BundleError, TokenizerError or StartupError."""
    bundle, name, device, cores, settings, observer = loading
    translate = bundle.translate
    languages, decoding = translate.languages, translate.decoding
    source, target = load_tokenizers(bundle)
    begin_ids = () if decoding.forced_begin_token_id is None else (decoding.forced_begin_token_id,)
    num_begin_tokens = _count_begin_tokens(bundle, source, target) + len(begin_ids)
    precision = choose_precision(bundle, device, settings.precision)
    backend = open_backend(partial(OnnxDecoderBackend, observe=step_observer(loading)), loading, precision)
    max_source_tokens = min(settings.max_source_tokens, translate.max_source_tokens)
    # transformers counts a forced first token, and where a format has a prefix of the target, that is one.
    num_forced_tokens = len(begin_ids) or len(translate.format.target_prefix)
    room = translate.limits.max_target_tokens + 1 - num_begin_tokens  # the last token is not read
    max_new_tokens = min(settings.max_new_tokens, room, decoding.max_new_tokens or room)
    # A step of beam search chooses among twice as many candidates as the beam is wide.
    max_beam_size = max(1, min(settings.max_beam_size, decoding.num_candidates // 2))
    longest = max_beam_size * (num_begin_tokens + max_new_tokens) * backend.bytes_per_position
    longest += max_source_tokens * backend.bytes_per_source_token
    max_cache_bytes = choose_cache_bytes(settings, backend.usable_bytes, longest, name)
    engine = DecodingEngine(
        backend,
        translation_limits(settings, device, max_cache_bytes),
        num_loops=cores.num_loops,
        observer=observer,
    )
    return TranslationModel(
        name=name,
        languages=languages.codes,
        directions=frozenset(languages.directions),
        tokenizer=source,
        target_tokenizer=target,
        format=translate.format,
        decoding=decoding_rules(decoding, num_forced_tokens),
        begin_ids=begin_ids,
        engine=engine,
        precision=precision,
        device=device,
        max_source_tokens=max_source_tokens,
        max_new_tokens=max_new_tokens,
        max_beam_size=max_beam_size,
        default_beam_size=decoding.beam_size,
        default_length_penalty=decoding.length_penalty,
        info=model_info(bundle),
    )


def translation_limits(settings: Settings, device: Device, max_cache_bytes: int) -> DecodingLimits:
    """The limits of an engine on `device`."""
    return DecodingLimits(
        max_rows=settings.max_rows,
        greedy_steps=settings.greedy_steps or GREEDY_STEPS[device],
        max_batch_tokens=settings.max_batch_tokens,
        max_waiting_requests=settings.max_waiting_requests,
        max_waiting_tokens=settings.max_waiting_tokens,
        max_cache_bytes=max_cache_bytes,
        overhead_tokens=_OVERHEAD_TOKENS[device],
    )


def _count_begin_tokens(bundle: Bundle, source: Tokenizer, target: Tokenizer) -> int:
    """The most tokens that a translation begins with; TokenizerError where the tokenizers lack what a request needs."""
    translate = bundle.translate
    bounds = [translate.format.bind(*direction, source, target) for direction in translate.languages.directions]
    return max((len(bound.target_ids) for bound in bounds), default=1)


def decoding_rules(decoding: Decoding, num_forced_tokens: int) -> DecodingOptions:
    """The decoding options of a bundle. Suppressed tokens are left out by its graph or the engine."""
    return DecodingOptions(
        early_stopping=decoding.early_stopping,
        suppressed_sequences=decoding.bad_token_sequences,
        no_repeat_ngram_size=decoding.no_repeat_ngram_size,
        forces_end=decoding.forced_end_token_id is not None,
        num_forced_tokens=num_forced_tokens if decoding.beam_rules == "huggingface" else 0,
    )
