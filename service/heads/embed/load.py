"""An embedding bundle as a running model."""

from __future__ import annotations

from export.bundle import Bundle
from service.engine.encode.embedding_engine import EmbeddingEngine
from service.engine.encode.embedding_line import EmbeddingLimits
from service.errors import StartupError
from service.heads.embed.model import EmbeddingModel
from service.models.choices import Device, choose_precision
from service.models.common import Loading, load_tokenizer, model_info, open_backend
from service.runtime.encoder import OnnxEncoderBackend
from service.settings import Settings

MIN_COSINE = 0.99
"""`auto` leaves out a precision whose embeddings were further than this from PyTorch's when it was exported."""

_BATCH_TOKENS: dict[Device, int] = {"cpu": 512, "cuda": 16_384}
_OVERHEAD_TOKENS: dict[Device, int] = {"cpu": 16, "cuda": 1024}
"""docs/decisions/0041-embedding-batches.md: measured on a CPU; on a GPU a batch is dominated by kernel launches."""


def load_embedding(loading: Loading) -> EmbeddingModel:
    """Raises BundleError, TokenizerError or StartupError."""
    bundle, name, device, cores, settings, observer = loading
    embed = bundle.embed
    limits = embedding_limits(settings, device, embed.max_input_tokens, name)
    precision = choose_precision(bundle, device, settings.precision, exact_precisions(bundle))
    tokenizer = load_tokenizer(bundle)
    engine = EmbeddingEngine(
        open_backend(OnnxEncoderBackend, loading, precision),
        limits,
        num_loops=cores.num_loops,
        observer=observer,
    )
    return EmbeddingModel(
        name=name,
        tokenizer=tokenizer,
        engine=engine,
        precision=precision,
        device=device,
        max_input_tokens=embed.max_input_tokens,
        dimensions=bundle.config.d_model,
        pooling=embed.pooling,
        normalize=embed.normalize,
        prompts=embed.prompts,
        default_prompt_name=embed.default_prompt_name,
        num_special_tokens=tokenizer.num_special_tokens,
        info=model_info(bundle),
    )


def embedding_limits(settings: Settings, device: Device, max_input_tokens: int, name: str) -> EmbeddingLimits:
    """The limits of an engine on `device`; StartupError where the longest input does not fit a batch."""
    limits = EmbeddingLimits(
        max_batch_tokens=settings.max_embedding_batch_tokens or max(_BATCH_TOKENS[device], max_input_tokens),
        max_waiting_requests=settings.max_waiting_requests,
        max_waiting_tokens=settings.max_waiting_tokens,
        overhead_tokens=_OVERHEAD_TOKENS[device],
    )
    for variable, flag, value in (
        ("POLYHEAD_MAX_EMBEDDING_BATCH_TOKENS", "--max-embedding-batch-tokens", limits.max_batch_tokens),
        ("POLYHEAD_MAX_WAITING_TOKENS", "--max-waiting-tokens", limits.max_waiting_tokens),
    ):
        if value < max_input_tokens:
            raise StartupError(
                f"{variable} ({flag}) is {value}, but model {name} takes inputs of up to {max_input_tokens} tokens, "
                f"which could then never run: allow at least {max_input_tokens}"
            )
    return limits


def exact_precisions(bundle: Bundle) -> list[str]:
    """The precisions whose embeddings are near enough to PyTorch's, by the bundle's own parity report.

    One that could not be run where it was exported has no figure, and passes.
    """
    reports = {precision: bundle.manifest.parity.get(precision) for precision in bundle.precisions}
    return [
        precision
        for precision, report in reports.items()
        if report is None or report.smallest_cosine is None or report.smallest_cosine >= MIN_COSINE
    ]
