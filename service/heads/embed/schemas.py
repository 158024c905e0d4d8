"""TEI's protocol, /embed and /embed_all, where `model` is our own addition, and OpenAI's /v1/embeddings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, RootModel, SkipValidation

from service.http.schemas import WireModel


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


# `service.http.inputs` checks these, which take long lists and have messages of their own.
Inputs = SkipValidation[str | list[int] | list[str | list[int]]]

ModelName = Annotated[str | None, Field(description="Name of the model (ours); else the first that embeds.")]


class EmbedAllRequest(WireModel):
    """POST /embed_all."""

    inputs: Inputs = Field(
        description="A text, a list of token ids, or a list of these.", examples=["What is deep learning?"]
    )
    truncate: bool | None = Field(
        None, description="Cut inputs that are too long; null is the server's setting POLYHEAD_AUTO_TRUNCATE."
    )
    truncation_direction: Annotated[Literal["right", "left"], BeforeValidator(_lower)] = Field(
        "right", description="The end at which inputs are cut."
    )
    prompt_name: str | None = Field(None, description="Name of the prompt of the model to put before each text.")
    model: ModelName = None


class EmbedRequest(EmbedAllRequest):
    """POST /embed."""

    normalize: bool = Field(True, description="Give each vector the length 1.")
    dimensions: int | None = Field(
        None, description="Keep only the first so many numbers, before they are normalised. At most the model's."
    )


class SimilarityParameters(WireModel):
    """How the sentences are read, as of /embed."""

    truncate: bool | None = None
    truncation_direction: Annotated[Literal["right", "left"], BeforeValidator(_lower)] = "right"
    prompt_name: str | None = None


class SimilarityInputs(WireModel):
    """A sentence, and those that it is compared with."""

    source_sentence: str = Field(min_length=1, examples=["What is deep learning?"])
    sentences: SkipValidation[list[str]] = Field(description="Texts, as many as one request may embed.")


class SimilarityRequest(WireModel):
    """POST /similarity."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters = SimilarityParameters()
    model: ModelName = None


class SimilarityResponse(RootModel[list[float]]):
    """200 of POST /similarity: the cosine of each sentence and the source sentence."""


class EmbedResponse(RootModel[list[list[float]]]):
    """200 of POST /embed: one vector for each input, also for one input."""


class EmbedAllResponse(RootModel[list[list[list[float]]]]):
    """200 of POST /embed_all: one vector for each token of each input."""


class EmbeddingsRequest(WireModel):
    """POST /v1/embeddings."""

    # Checked by `service.http.inputs`, which takes long lists and has messages of its own.
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
    truncated_inputs: int | None = Field(None, description="How many inputs were cut, where some were (ours).")


class EmbeddingsResponse(WireModel):
    """200 of POST /v1/embeddings."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingsUsage
