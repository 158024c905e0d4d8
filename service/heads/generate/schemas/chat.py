"""OpenAI's protocol: /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from service.errors import quoted
from service.heads.generate.schemas.completions import Usage
from service.heads.generate.schemas.sampling import SamplingFields
from service.http.schemas import WireModel

MAX_TOP_LOGPROBS = 20
MAX_MESSAGES = 2048
MAX_PARTS = 2048
_PART = {"type": "object", "maxProperties": 100}


def _join_parts(content: Any) -> Any:
    """The text of a content that is given in parts, all of which must be texts."""
    if not isinstance(content, list):
        return content
    for part in content:
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise ValueError(
                f"parts of a content must be texts, as in {{'type': 'text', 'text': ...}}. Given: {quoted(part)}"
            )
    return "".join(part["text"] for part in content)


class ChatMessage(WireModel):
    """One message. The role developer, a newer name, becomes system, which templates expect."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        str,
        BeforeValidator(_join_parts),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _PART, "maxItems": MAX_PARTS}]}),
    ] = Field(description="A text, or a list of parts of the type text.")
    name: str | None = None

    def for_template(self) -> dict[str, str]:
        """The message as the chat template gets it."""
        message = {"role": "system" if self.role == "developer" else self.role, "content": self.content}
        return message if self.name is None else message | {"name": self.name}


class ChatRequest(SamplingFields):
    """POST /v1/chat/completions."""

    # Validated one by one, so that a message names the one that is wrong.
    messages: Annotated[
        list[Any],
        Field(min_length=1, max_length=MAX_MESSAGES),
        WithJsonSchema(
            {
                "type": "array",
                "items": ChatMessage.model_json_schema(),
                "minItems": 1,
                "maxItems": MAX_MESSAGES,
            }
        ),
    ]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Null is all that the context leaves."
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(None, description="The older name of it.")
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(
        None, description="With logprobs: so many of the likeliest tokens too."
    )
    tools: Annotated[Any, Field(description="Not supported.")] = None
    tool_choice: Annotated[Any, Field(description="Not supported, but for none.")] = None
    functions: Annotated[Any, Field(description="Not supported.")] = None
    function_call: Annotated[Any, Field(description="Not supported, but for none.")] = None
    response_format: Annotated[Any, Field(description="Not supported, but for the type text.")] = None


class ChatTopLogprob(WireModel):
    """One of the likeliest tokens in a place."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogprob(ChatTopLogprob):
    """One token of the answer."""

    top_logprobs: list[ChatTopLogprob]


class ChatLogprobs(WireModel):
    """One entry for each token of the answer."""

    content: list[ChatLogprob]


class ChatAnswer(WireModel):
    """The message of the model."""

    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(WireModel):
    """One answer."""

    index: int
    message: ChatAnswer
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatResponse(WireModel):
    """200 of POST /v1/chat/completions. Chunks of a stream have a `delta` in the place of each `message`."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage


class ChatToken(WireModel):
    """One token of a prompt, and where it stands in it, in characters."""

    id: int
    text: str
    start: int
    stop: int


class ChatTokenizeResponse(WireModel):
    """200 of POST /chat_tokenize."""

    tokenize_response: list[ChatToken]
    templated_text: str


class TokenizerInfo(WireModel):
    """200 of GET /tokenizer_info: what tokenizer_config.json would say."""

    tokenizer_class: Literal["PreTrainedTokenizerFast"] = "PreTrainedTokenizerFast"
    model_max_length: int
    bos_token: str | None = None
    eos_token: str | None = None
    pad_token: str | None = None
    unk_token: str | None = None
    chat_template: str | None = None
