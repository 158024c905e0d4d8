"""What OpenAI's two protocols for generation have in common. Fields marked as ours are additions of this server."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from service.heads.generate.schemas.tgi import (
    MAX_STOP_CHARACTERS,
    BeamSize,
    LengthPenalty,
    MinP,
    RepetitionPenalty,
)
from service.http.schemas import Number, Share, WireModel

MAX_STOPS = 4
MAX_BIASES = 1024

Penalty = Annotated[Number, Field(ge=-2, le=2)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class StreamOptions(WireModel):
    """`stream_options`."""

    include_usage: bool = False


class SamplingFields(WireModel):
    """How tokens are chosen, and where the text ends."""

    model: str | None = Field(None, description="Name of the model; else the first that generates.")
    temperature: Annotated[Number, Field(ge=0, le=2)] = Field(1.0, description="0 takes the likeliest token.")
    top_p: Annotated[Number, Field(ge=0, le=1)] = Field(1.0, description="0 takes the likeliest token.")
    n: Annotated[int, Field(ge=1)] = Field(1, description="Outputs for each prompt.")
    stop: Annotated[list[Text], BeforeValidator(_as_list), Field(max_length=MAX_STOPS)] = Field(
        [], description="The text ends before the first of these; one, or a list."
    )
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: dict[str, Number] = Field(
        {}, max_length=MAX_BIASES, description="Added to the logits of token ids, -100 to 100."
    )
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = Field(
        None, description="Equal seeds draw equal outputs."
    )
    stream: bool = Field(False, description="Send chunks as server-sent events.")
    stream_options: Annotated[StreamOptions | None, WithJsonSchema(StreamOptions.model_json_schema())] = None
    user: Annotated[Any, Field(description="Not used.")] = None
    top_k: Annotated[int, Field(ge=-1)] = Field(
        0, description="Draw only from so many tokens; 0 or -1: from all (ours)."
    )
    min_p: MinP = 0.0
    typical_p: Share | None = Field(None, description="Locally typical sampling (ours).")
    repetition_penalty: RepetitionPenalty = Field(1.0, description="1 is none (ours).")
    beam_size: BeamSize = 1
    length_penalty: LengthPenalty = 1.0

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn."""
        return self.temperature > 0 and self.top_p > 0 and self.beam_size == 1

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a count of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage
