"""A loaded model that makes vectors of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from service.errors import InputError, quoted
from service.models.base import LoadedModel, RequestEngine


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingModel(LoadedModel):
    """A model that turns a text into one vector of `dimensions` numbers, or one for each token.

    `max_input_tokens` counts the `num_special_tokens` that the tokenizer puts around a text. `pooling` is how the
    graph makes one vector out of many: cls, mean or last_token. `prompts` are prefixes by name.
    """

    task: ClassVar[str] = "embed"

    engine: RequestEngine[EmbeddingRequest, EmbeddingResult]
    max_input_tokens: int
    dimensions: int
    pooling: str
    num_special_tokens: int
    normalize: bool
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None

    @property
    def max_input_length(self) -> int:
        """Special tokens included."""
        return self.max_input_tokens

    async def probe(self, deadline: float) -> None:
        """A single token."""
        await self.engine.run([EmbeddingRequest((0,), deadline=deadline)])

    def prompt(self, name: str | None) -> str:
        """The prompt `name`, or the model's default; "" where there is none. InputError lists the names."""
        name = self.default_prompt_name if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(sorted(self.prompts)) or "none, the model has no prompts"
            raise InputError(
                f"Input validation error: `prompt_name` {quoted(name)!r} is not a prompt of the model {self.name}. "
                f"Allowed: {known}",
                parameter="prompt_name",
            )
        return self.prompts[name]
