"""A bundle's attention graph, beside the model that it explains."""

from __future__ import annotations

from export.bundle import Bundle
from service.engine.core.line import LineLimits
from service.engine.encode.attention_engine import AttentionEngine
from service.heads.attend.support import AttentionSupport
from service.models.common import Loading, open_backend
from service.runtime.attention import OnnxAttentionBackend


def load_attention(loading: Loading) -> AttentionSupport | None:
    """None where the bundle has no attention graph. Raises StartupError when the runtime cannot load it."""
    bundle, settings = loading.bundle, loading.settings
    if bundle.manifest.attention is None:
        return None
    backend = open_backend(_backend, loading, "fp32")
    limits = LineLimits(
        # One input runs at a time, so the limit is that of the model and not of a batch.
        max_batch_tokens=backend.max_source_tokens + backend.max_target_tokens,
        max_waiting_requests=settings.max_waiting_requests,
        max_waiting_tokens=settings.max_waiting_tokens,
    )
    engine = AttentionEngine(backend, limits, loading.observer)
    translate = bundle.manifest.heads.translate
    alignment = None if translate is None else translate.alignment
    return AttentionSupport(engine=engine, config=bundle.config, alignment=alignment)


def _backend(bundle: Bundle, precision: str, device: str, num_threads: int) -> OnnxAttentionBackend:
    """The graph has one precision, and runs on the CPU."""
    return OnnxAttentionBackend(bundle, num_threads)
