"""OpenAI's protocol: /v1/responses, in its stateless part and for texts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from service.heads.generate.schemas.chat import MAX_MESSAGES, ChatMessage
from service.http.schemas import Number, WireModel

_ITEMS = {"type": "array", "items": ChatMessage.model_json_schema(), "minItems": 1, "maxItems": MAX_MESSAGES}


class ResponsesRequest(WireModel):
    """POST /v1/responses."""

    input: Annotated[str | list[Any], WithJsonSchema({"anyOf": [{"type": "string"}, _ITEMS]})] = Field(
        description="What the user says, or a list of messages.", examples=["Tell me a story."], max_length=10**9
    )
    model: str | None = Field(None, description="Name of the model; else the first that generates.")
    instructions: str | None = Field(None, description="A message of the system before the others.")
    max_output_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Null is all that the context leaves."
    )
    temperature: Annotated[Number, Field(ge=0, le=2)] = Field(1.0, description="0 takes the likeliest token.")
    top_p: Annotated[Number, Field(ge=0, le=1)] = Field(1.0, description="0 takes the likeliest token.")
    stream: bool = Field(False, description="Send events as they come.")
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = Field(None, description="Comes back as it is.")
    truncation: Literal["disabled"] = Field("disabled", description="A prompt that is too long is refused.")
    user: Annotated[Any, Field(description="Not used.")] = None
    store: Literal[False] | None = Field(None, description="Nothing is stored: true is refused.")
    previous_response_id: Annotated[Any, Field(description="Not supported: nothing is stored.")] = None
    conversation: Annotated[Any, Field(description="Not supported: nothing is stored.")] = None
    prompt: Annotated[Any, Field(description="Not supported: nothing is stored.")] = None
    background: Annotated[Any, Field(description="Not supported, but for false.")] = None
    tools: Annotated[Any, Field(description="Not supported.")] = None
    tool_choice: Annotated[Any, Field(description="Not supported, but for none and auto.")] = None
    text: Annotated[Any, Field(description="Not supported, but for the format text.")] = None


class OutputText(WireModel):
    """The text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field([], max_length=0)
    logprobs: list[Any] = Field([], max_length=0)


class OutputMessage(WireModel):
    """What the model says."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]


class ResponsesUsage(WireModel):
    """Tokens read and generated."""

    input_tokens: int
    input_tokens_details: dict[str, int] = Field(max_length=1)
    output_tokens: int
    output_tokens_details: dict[str, int] = Field(max_length=1)
    total_tokens: int


class ResponsesResponse(WireModel):
    """200 of POST /v1/responses; a stream's events carry it too."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete"]
    model: str
    output: list[OutputMessage]
    usage: ResponsesUsage | None
    incomplete_details: dict[str, str] | None = None
