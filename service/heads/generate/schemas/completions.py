"""OpenAI's protocol: /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from service.heads.generate.schemas.sampling import SamplingFields
from service.http.schemas import WireModel

MAX_LOGPROBS = 5

FinishReason = Literal["stop", "length"]


class CompletionRequest(SamplingFields):
    """POST /v1/completions."""

    # Checked by `service.http.inputs`, which takes long lists and has messages of its own.
    prompt: SkipValidation[str | list[int] | list[str | list[int]]] = Field(
        description="A text, a list of token ids, or a list of these.", examples=["Once upon a time"]
    )
    max_tokens: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Null is 16, or what the context leaves. With 0 only the prompt is scored; needs echo."
    )
    best_of: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Draw so many outputs for each prompt and give the n best."
    )
    echo: bool = Field(False, description="Put the prompt before the text.")
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = Field(
        None, description="With log-probabilities, and with those of so many of the likeliest tokens."
    )
    add_special_tokens: bool = Field(
        True, description="Put the special tokens of the tokenizer around prompts, which may have their own (vLLM's)."
    )
    suffix: Annotated[Any, Field(description="Not supported.")] = None


class Logprobs(WireModel):
    """One entry for each token of the text."""

    tokens: list[str] = Field(description=r'A part of a character is written as "bytes:\xf0".')
    token_logprobs: list[float | None] = Field(description="Null for the first token of a prompt.")
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int] = Field(description="Where the token begins in the choice's text, in characters.")


class CompletionChoice(WireModel):
    """One output; those of the first prompt come first."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: FinishReason | None = Field(description="Null in all chunks of a stream but the last.")


class Usage(WireModel):
    """Tokens read and generated. Outputs that best_of has rejected count too."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(WireModel):
    """200 of POST /v1/completions; a chunk of a stream has the same shape."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage | None
