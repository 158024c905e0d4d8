"""A bundle that continues texts as a running model."""

from __future__ import annotations

from functools import partial

from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.errors import StartupError
from service.heads.generate.model import GenerationModel
from service.models.choices import GREEDY_STEPS, Device, choose_cache_bytes, choose_precision
from service.models.common import Loading, check_decoding, load_tokenizer, model_info, open_backend, step_observer
from service.runtime.decoder import OnnxDecoderBackend
from service.settings import Settings

_PROMPT_BATCH_TOKENS: dict[Device, int] = {"cpu": 256, "cuda": 4096}
"""docs/decisions/0051-generation-batches.md: measured on a CPU; a GPU computes as many in less than a step."""


def load_generation(loading: Loading) -> GenerationModel:
    """Raises BundleError, TokenizerError or StartupError."""
    bundle, name, device, cores, settings, observer = loading
    generate = bundle.generate
    check_decoding(bundle, generate.decoding)
    precision = choose_precision(bundle, device, settings.precision)
    tokenizer = load_tokenizer(bundle)
    backend = open_backend(partial(OnnxDecoderBackend, observe=step_observer(loading)), loading, precision)
    max_total_tokens = min(settings.max_total_tokens, backend.max_total_tokens)
    longest_bytes = max_total_tokens * backend.bytes_per_position
    max_cache_bytes = choose_cache_bytes(settings, backend.usable_bytes, longest_bytes, name)
    limits = generation_limits(settings, device, max_total_tokens, max_cache_bytes, name)
    engine = DecodingEngine(backend, limits, num_loops=cores.num_loops, observer=observer)
    return GenerationModel(
        name=name,
        tokenizer=tokenizer,
        engine=engine,
        precision=precision,
        device=device,
        max_total_tokens=max_total_tokens,
        eos_ids=backend.eos_ids,
        max_beam_size=min(settings.max_beam_size, engine.max_beam_size),
        max_top_tokens=backend.num_candidates,
        chat_template=generate.chat_template,
        special_tokens=generate.special_tokens,
        info=model_info(bundle),
    )


def generation_limits(
    settings: Settings, device: Device, max_total_tokens: int, max_cache_bytes: int, name: str
) -> DecodingLimits:
    """The limits of an engine on `device`; StartupError when the longest text could be asked for and then never run."""
    if settings.max_waiting_tokens < max_total_tokens:
        raise StartupError(
            f"POLYHEAD_MAX_WAITING_TOKENS (--max-waiting-tokens) is {settings.max_waiting_tokens}, but a text of the "
            f"model {name} may have {max_total_tokens} tokens, which could then never be served: allow as many, or "
            "lower POLYHEAD_MAX_TOTAL_TOKENS (--max-total-tokens)"
        )
    return DecodingLimits(
        max_rows=settings.max_rows,
        greedy_steps=settings.greedy_steps or GREEDY_STEPS[device],
        max_prompt_batch_tokens=settings.max_prompt_batch_tokens or _PROMPT_BATCH_TOKENS[device],
        max_waiting_requests=settings.max_waiting_requests,
        max_waiting_tokens=settings.max_waiting_tokens,
        max_cache_bytes=max_cache_bytes,
        max_prefix_tokens=settings.max_prefix_tokens,
    )
