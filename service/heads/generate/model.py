"""A loaded model that continues texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from service.engine.decode.types import DecodingOptions, DecodingRequest, PromptToken, Result, TokenEvent
from service.models.base import LoadedModel, RequestEngine


class TokenStream(Protocol):
    """The tokens of one request as they are generated; see `service.engine.decode.stream`."""

    queue_seconds: float | None
    prompt_log_probs: tuple[PromptToken, ...] | None

    def __aiter__(self) -> TokenStream: ...
    async def __anext__(self) -> TokenEvent: ...
    async def aclose(self) -> None:
        """Cancel the request; its rows are freed at the engine's next step."""
        ...


class TokenEngine(RequestEngine[DecodingRequest, Result], Protocol):
    """An engine that streams the continuations of prompts, token by token."""

    async def open(self, request: DecodingRequest) -> TokenStream:
        """The tokens of a request that has been admitted."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationModel(LoadedModel):
    """A model that continues a text.

    `max_total_tokens` bounds a prompt and its continuation together. `max_top_tokens` is how many of the likeliest
    tokens a step can name. `chat_template` is the Jinja template that makes a prompt of a conversation, and
    `special_tokens` are the texts that it knows by name, such as bos_token.
    """

    task: ClassVar[str] = "generate"

    engine: TokenEngine
    max_total_tokens: int
    eos_ids: tuple[int, ...] = ()
    max_beam_size: int = 1
    max_top_tokens: int = 5
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    @property
    def max_input_length(self) -> int:
        """One position less than the context, for a generated token."""
        return self.max_total_tokens - 1

    async def probe(self, deadline: float) -> None:
        """One token after a single one."""
        options = DecodingOptions(max_new_tokens=1)
        await self.engine.run([DecodingRequest(prompt_ids=(0,), options=options, deadline=deadline)])
