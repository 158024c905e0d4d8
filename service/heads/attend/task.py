"""The tasks of POST /attention: an input, and the selection of its maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from service.heads.attend.selection import Outline, Wishes
from service.heads.attend.word_alignment import AlignmentWishes
from service.heads.translate.job import SearchOptions
from service.models.registry import ModelRegistry

OutlineCheck = Callable[[Outline], None]


@dataclass(frozen=True, slots=True)
class TranslationInput:
    """A text in `source`, a known code or "auto", and its translation: `target_text`, or the model's own."""

    text: str
    source: str
    target: str
    target_text: str | None = None
    search: SearchOptions = field(default_factory=SearchOptions)


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """One text, or a pair."""

    texts: tuple[str, ...]
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True)
class DecoderInput:
    """A prompt, and the most tokens of its continuation."""

    prompt: str
    max_new_tokens: int = 0


@dataclass(frozen=True, slots=True)
class AttentionTask:
    """An input, and the selection of its maps.

    `registry` is the snapshot that the request began with. `check` refuses what the wanted format has no
    room for. `deadline` is on `time.monotonic()`'s clock.
    """

    registry: ModelRegistry
    input: TranslationInput | EncoderInput | DecoderInput
    wishes: Wishes
    alignment: AlignmentWishes | None = None
    model_name: str | None = None
    deadline: float | None = None
    check: OutlineCheck = lambda outline: None
