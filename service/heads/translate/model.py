"""A loaded model that translates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from model.tokenizer import Tokenizer
from model.translation_format import OWN_FORMAT, BoundFormat, TranslationFormat
from service.engine.decode.types import DecodingOptions, DecodingRequest, Result
from service.models.base import LoadedModel, RequestEngine


class TranslationEngine(RequestEngine[DecodingRequest, Result], Protocol):
    """An engine that knows its speed."""

    def estimate_seconds(self, requests: Sequence[DecodingRequest]) -> float:
        """What `requests` take at the least, had they the engine to themselves; 0 where nothing was measured yet."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class TranslationModel(LoadedModel):
    """A model that translates the pairs in `directions`, (source, target), between its `languages`."""

    task: ClassVar[str] = "translate"
    splits_inputs: ClassVar[bool] = True

    engine: TranslationEngine
    target_tokenizer: Tokenizer
    """Of what is written; `tokenizer` is that of what is read, and mostly the same."""
    format: TranslationFormat = OWN_FORMAT
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    """What the model asks of every search: tokens that are never written, an end that is forced, when it ends."""
    begin_ids: tuple[int, ...] = ()
    """Tokens that every output begins with, after those of its format."""
    languages: tuple[str, ...]
    directions: frozenset[tuple[str, str]]
    max_source_tokens: int
    max_new_tokens: int
    max_beam_size: int
    default_beam_size: int = 1
    default_length_penalty: float = 1.0

    def bound_format(self, source: str, target: str) -> BoundFormat:
        """The tokens around a text of one direction; TokenizerError names one that the tokenizers lack."""
        return self.format.bind(source, target, self.tokenizer, self.target_tokenizer)

    def prompt_ids(self, bound: BoundFormat) -> tuple[int, ...]:
        """What the decoder begins with, in one direction."""
        return (*bound.target_ids, *self.begin_ids)

    @property
    def max_input_length(self) -> int:
        """Of a sentence: longer ones are split."""
        return self.max_source_tokens

    async def probe(self, deadline: float) -> None:
        """No text, one token of output."""
        first = self.languages[0]
        bound = self.bound_format(*min(self.directions, default=(first, first)))
        request = DecodingRequest(
            source_ids=bound.source_ids(()),
            prompt_ids=self.prompt_ids(bound),
            options=DecodingOptions(max_new_tokens=1),
            deadline=deadline,
        )
        await self.engine.run([request])
