"""A bundle that continues texts as a running model."""

from __future__ import annotations

from service.engine.generation.engine import GenerationEngine
from service.engine.generation.line import GenerationLimits
from service.errors import StartupError
from service.loading.choices import Device, choose_precision
from service.loading.common import Loading, load_tokenizer, model_info, open_backend
from service.models import GenerationModel
from service.runtime.decoder import OnnxGenerationBackend
from service.settings import Settings

_PROMPT_BATCH_TOKENS: dict[Device, int] = {"cpu": 256, "cuda": 4096}
"""docs/decisions/0051-generation-batches.md: measured on a processor; a GPU computes as many in less than a step."""


def load_generation(loading: Loading) -> GenerationModel:
    """Raises BundleError, TokenizerError or StartupError."""
    bundle, device, cores, settings, observer = loading
    manifest, generation = bundle.manifest, bundle.manifest.generation
    precision = choose_precision(bundle, device, settings.precision)
    tokenizer = load_tokenizer(bundle)
    backend = open_backend(OnnxGenerationBackend, loading, precision)
    max_total_tokens = min(settings.max_total_tokens, backend.max_total_tokens)
    limits = generation_limits(settings, device, max_total_tokens, manifest.name)
    engine = GenerationEngine(backend, limits, num_loops=cores.num_loops, observer=observer)
    return GenerationModel(
        name=manifest.name,
        tokenizer=tokenizer,
        engine=engine,
        precision=precision,
        device=device,
        max_total_tokens=max_total_tokens,
        eos_ids=backend.eos_ids,
        max_beam_size=min(settings.max_beam_size, engine.max_beam_size),
        max_top_tokens=backend.num_candidates,
        chat_template=generation.chat_template if generation else None,
        special_tokens=generation.special_tokens if generation else {},
        info=model_info(bundle),
    )


def generation_limits(settings: Settings, device: Device, max_total_tokens: int, name: str) -> GenerationLimits:
    """The limits of an engine on `device`; StartupError when the longest text could be asked for and then never run."""
    for field in ("max_cached_tokens", "max_waiting_tokens"):
        if (value := getattr(settings, field)) < max_total_tokens:
            raise StartupError(
                f"POLYHEAD_{field.upper()} (--{field.replace('_', '-')}) is {value}, but a text of the model {name} "
                f"may have {max_total_tokens} tokens, which could then never be served: allow as many, or lower "
                "POLYHEAD_MAX_TOTAL_TOKENS (--max-total-tokens)"
            )
    return GenerationLimits(
        max_rows=settings.max_rows,
        max_batch_tokens=settings.max_prompt_batch_tokens or _PROMPT_BATCH_TOKENS[device],
        max_waiting_requests=settings.max_waiting_requests,
        max_waiting_tokens=settings.max_waiting_tokens,
        max_cached_tokens=settings.max_cached_tokens,
        max_prefix_tokens=settings.max_prefix_tokens,
    )
