"""GET /health and GET /info."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from service.engine.attention import Kind
from service.schemas.common import WireModel


class HealthResponse(WireModel):
    """200 of GET /health; 503 has the same fields beside `error` and `error_type`."""

    status: str
    models: dict[str, str] = Field(description='By name: "ok", or "busy" for one with a full waiting line.')


class LimitsInfo(WireModel):
    """The server's limits, by the names of the settings."""

    model_config = ConfigDict(from_attributes=True)

    max_body_bytes: int
    max_text_characters: int
    max_batch_texts: int
    max_client_batch_size: int
    max_alternatives: int
    max_beam_size: int
    max_file_bytes: int
    max_waiting_requests: int
    max_waiting_tokens: int
    requests_per_minute: int
    request_timeout_seconds: float


class ModelInfo(WireModel):
    """What every loaded model has."""

    name: str
    task: str
    device: str
    precision: str
    attention: list[Kind] = Field(description="What POST /attention shows of it; nothing without an attention graph.")
    details: dict[str, Any]


class TranslationModelInfo(ModelInfo):
    """One loaded model for translation."""

    max_source_tokens: int
    max_new_tokens: int
    max_beam_size: int
    default_beam_size: int
    default_length_penalty: float


class EmbeddingModelInfo(ModelInfo):
    """One loaded model for embeddings."""

    max_input_tokens: int
    dimensions: int
    pooling: str
    normalize: bool
    prompts: dict[str, str]
    default_prompt_name: str | None


class GenerationModelInfo(ModelInfo):
    """One loaded model that continues texts."""

    max_total_tokens: int
    max_beam_size: int
    max_top_tokens: int
    has_chat_template: bool


class InfoResponse(WireModel):
    """TEI's fields, which describe the first model for embeddings, and ours: all the models, and the limits.

    Where no model makes embeddings, TEI's fields describe the first model there is.
    """

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, dict[str, Any]]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    models: list[TranslationModelInfo | EmbeddingModelInfo | GenerationModelInfo]
    limits: LimitsInfo
