"""OpenAI's protocol: /v1/embeddings and /v1/models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from service.schemas.common import WireModel


class EmbeddingsRequest(WireModel):
    """POST /v1/embeddings."""

    # Checked by `service.inputs`, which takes long lists and has messages of its own.
    input: SkipValidation[str | list[int] | list[str | list[int]]] = Field(
        description="A text, a list of token ids, or a list of these.", examples=["What is deep learning?"]
    )
    model: str | None = Field(None, description="Name of the model; else the first that embeds.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or base64 of little-endian float32."
    )
    dimensions: int | None = Field(
        None, description="Keep only the first so many numbers, before they are normalised. At most the model's."
    )
    user: Annotated[Any, Field(description="Not used.")] = None


class EmbeddingObject(WireModel):
    """One vector."""

    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str = Field(description="Numbers, or base64 of little-endian float32.")
    index: int


class EmbeddingsUsage(WireModel):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(WireModel):
    """200 of POST /v1/embeddings."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingsUsage


class ModelObject(WireModel):
    """One loaded model."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="When it was loaded, in seconds since 1970.")
    owned_by: Literal["polyhead"] = "polyhead"
    task: str = Field(description="What it is for (ours).")


class ModelList(WireModel):
    """200 of GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


class OpenAIError(WireModel):
    """What went wrong, in the words of OpenAI's protocol."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorResponse(WireModel):
    """Every error under /v1/."""

    error: OpenAIError


def openai_error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries for error statuses."""
    return {status: {"model": OpenAIErrorResponse} for status in statuses}
