"""The engine's vocabulary: what goes in and what comes out, as plain immutable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

_MAX_LENGTH_PENALTY = 10.0
"""A length to a power far beyond this is no number any more, and the loop that all share must not meet that."""


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How one sequence is searched for.

    `beam_size` rows of the cache are taken (1 is greedy). `length_penalty` is the exponent alpha that
    divides a hypothesis' log-probability by its length (Wu et al. 2016 in its plain form): 0 ignores
    length, larger values favour longer outputs. `num_hypotheses` of the beam are returned, best first,
    and cannot exceed `beam_size`. `max_new_tokens` counts the end-of-sequence token.
    """

    beam_size: int = 1
    length_penalty: float = 1.0
    num_hypotheses: int = 1
    max_new_tokens: int = 256

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ValueError(f"beam_size is {self.beam_size}; it must be at least 1")
        if not 1 <= self.num_hypotheses <= self.beam_size:
            raise ValueError(
                f"num_hypotheses is {self.num_hypotheses}; it must lie between 1 and beam_size ({self.beam_size})"
            )
        if not 0.0 <= self.length_penalty <= _MAX_LENGTH_PENALTY:
            raise ValueError(
                f"length_penalty is {self.length_penalty}; it must lie between 0 and {_MAX_LENGTH_PENALTY:g}"
            )
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One sequence to decode: token ids with their special tokens already in place.

    `deadline` is a point on `time.monotonic()`'s clock, in seconds; None waits for ever.
    """

    input_ids: tuple[int, ...]
    options: DecodingOptions = field(default_factory=DecodingOptions)
    deadline: float | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def num_rows(self) -> int:
        """Rows of the cache that its search takes."""
        return self.options.beam_size


class Hypothesis(NamedTuple):
    """One output. `token_ids` has no special tokens; `finished` is False when it was cut short."""

    token_ids: tuple[int, ...]
    score: float
    finished: bool


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """The hypotheses of one request, best first, and what it cost."""

    hypotheses: tuple[Hypothesis, ...]
    queue_seconds: float
    inference_seconds: float
    num_input_tokens: int

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of one engine. Counters grow for the life of the engine; the others are of the moment."""

    waiting_requests: int
    waiting_tokens: int
    active_rows: int
    max_rows: int
    steps: int
    generated_tokens: int
    padding_share: float
    is_alive: bool = True
