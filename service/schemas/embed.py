"""TEI's protocol: /embed, /embed_all, /tokenize and /decode. `model` is our own addition."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, RootModel, SkipValidation

from service.schemas.common import WireModel


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


# `service.inputs` checks these, which take long lists and have messages of their own.
Inputs = SkipValidation[str | list[int] | list[str | list[int]]]
Texts = SkipValidation[str | list[str]]
Ids = SkipValidation[list[int] | list[list[int]]]

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


class EmbedResponse(RootModel[list[list[float]]]):
    """200 of POST /embed: one vector for each input, also for one input."""


class EmbedAllResponse(RootModel[list[list[list[float]]]]):
    """200 of POST /embed_all: one vector for each token of each input."""


class TokenizeRequest(WireModel):
    """POST /tokenize."""

    inputs: Texts = Field(description="A text, or a list of texts.", examples=["What is deep learning?"])
    add_special_tokens: bool = Field(True, description="With the special tokens that the model reads.")
    prompt_name: str | None = Field(None, description="Name of the prompt of the model to put before each text.")
    model: Annotated[str | None, Field(description="Name of the model (ours), of any task.")] = None


class Token(WireModel):
    """One token. `start` and `stop` count characters of the text with its prompt; a special token has none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TokenizeResponse(RootModel[list[list[Token]]]):
    """200 of POST /tokenize: the tokens of each input, also for one input."""


class DecodeRequest(WireModel):
    """POST /decode."""

    ids: Ids = Field(description="Token ids, or a list of lists of them.", examples=[[101, 2054, 102]])
    skip_special_tokens: bool = Field(True, description="Leave special tokens out of the text.")
    model: Annotated[str | None, Field(description="Name of the model (ours), of any task.")] = None


class DecodeResponse(RootModel[list[str]]):
    """200 of POST /decode: the text of each list, also for one list."""
