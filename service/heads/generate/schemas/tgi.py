"""TGI's protocol: /generate and /generate_stream. Fields marked as ours are additions of this server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from service.http.schemas import Count, Number, Positive, Seed, Share, WireModel

MAX_STOPS = 4
MAX_STOP_CHARACTERS = 1000
MAX_PARAMETERS = 100
MAX_TOP_TOKENS = 5

Penalty = Annotated[Number, Field(ge=-2, le=2)]
RepetitionPenalty = Annotated[Number, Field(gt=0, le=100)]
MinP = Annotated[
    Number, Field(ge=0, le=1, description="Leave out tokens less likely than this share of the best (ours).")
]
LengthPenalty = Annotated[
    Number, Field(ge=0, le=10, description="Exponent of the length that divides a hypothesis' score (ours).")
]
BeamSize = Annotated[int, Field(ge=1, description="Width of the beam search, without sampling and streaming (ours).")]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]


class GenerateParameters(WireModel):
    """The parameters of generation; null or absent is off."""

    best_of: Count | None = Field(None, description="Draw so many outputs and give the best; needs sampling.")
    temperature: Positive | None = Field(None, description="Implies sampling, as the next three do.")
    top_k: Count | None = None
    top_p: Share | None = None
    typical_p: Share | None = None
    min_p: MinP | None = None
    do_sample: bool = Field(False, description="Draw tokens; else the likeliest is taken.")
    seed: Seed | None = Field(None, description="Equal seeds draw equal outputs.")
    repetition_penalty: RepetitionPenalty | None = None
    frequency_penalty: Penalty | None = None
    max_new_tokens: Count | None = Field(None, description="Else all that the context leaves.")
    return_full_text: bool = Field(False, description="Put the prompt before the text.")
    add_special_tokens: bool = Field(
        True, description="Put the special tokens of the tokenizer around the prompt, which may have its own (ours)."
    )
    stop: list[Stop] = Field([], max_length=MAX_STOPS, description="The text ends with the first of these.")
    truncate: Count | None = Field(None, description="Keep only the last so many tokens of the prompt.")
    details: bool = False
    decoder_input_details: bool = Field(False, description="With the log-probabilities of the prompt, in the details.")
    top_n_tokens: int | None = Field(
        None, ge=0, le=MAX_TOP_TOKENS, description="With the likeliest tokens, in the details."
    )
    beam_size: BeamSize | None = None
    length_penalty: LengthPenalty | None = None
    watermark: bool = Field(False, description="Not supported.")
    grammar: Annotated[Any, Field(description="Not supported.")] = None
    adapter_id: Annotated[Any, Field(description="Not supported.")] = None


class GenerateRequest(WireModel):
    """POST /generate and /generate_stream."""

    inputs: str = Field(description="The prompt.", examples=["What is deep learning?"])
    # Validated by itself, so that a message names the parameter that is wrong.
    parameters: Annotated[
        dict[str, Any],
        WithJsonSchema(GenerateParameters.model_json_schema() | {"maxProperties": MAX_PARAMETERS}),
    ] = Field({}, max_length=MAX_PARAMETERS)
    stream: bool = Field(False, description="POST /generate only: answer as /generate_stream does.")
    model: str | None = Field(None, description="Name of the model (ours); else the first that generates.")


class PrefillToken(WireModel):
    """A token of the prompt; the first has no log-probability."""

    id: int
    text: str
    logprob: float | None


class OutputToken(WireModel):
    """A token of the output; `special` ones are no part of the text."""

    id: int
    text: str
    logprob: float
    special: bool


FinishReason = Literal["length", "eos_token", "stop_sequence"]


class BestOfSequence(WireModel):
    """One of the outputs that `best_of` has drawn."""

    generated_text: str
    finish_reason: FinishReason
    generated_tokens: int
    seed: int | None
    prefill: list[PrefillToken]
    tokens: list[OutputToken]
    top_tokens: list[list[OutputToken]] | None = None


class GenerateDetails(WireModel):
    """Details of the generated text."""

    finish_reason: FinishReason
    generated_tokens: int
    seed: int | None
    prefill: list[PrefillToken]
    tokens: list[OutputToken]
    top_tokens: list[list[OutputToken]] | None = None
    best_of_sequences: list[BestOfSequence] | None = Field(None, description="All but the best, best first.")
    truncated: bool | None = Field(None, description="True where `truncate` has cut the prompt (ours).")


class GenerateResponse(WireModel):
    """200 of POST /generate."""

    generated_text: str
    details: GenerateDetails | None = None


class StreamDetails(WireModel):
    """Details of the generated text, in the last event."""

    finish_reason: FinishReason
    generated_tokens: int
    seed: int | None
    input_length: int


class StreamResponse(WireModel):
    """One event of POST /generate_stream."""

    index: int = Field(description="1 for the first token.")
    token: OutputToken
    generated_text: str | None = Field(description="The whole text, in the last event.")
    details: StreamDetails | None
    top_tokens: list[OutputToken] | None = None
