"""The decoding engine's vocabulary: what goes in and what comes out, as plain immutable values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from service.engine.decode.sampling.chooser import Ranked
from service.engine.decode.sampling.options import SamplingOptions

FinishReason = Literal["eos_token", "length"]
EarlyStopping = Literal["always", "heuristic", "never"]

_MAX_LENGTH_PENALTY = 10.0
"""Larger powers of a length overflow, which would raise in the loop that all requests share."""


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How one sequence is searched for.

    `beam_size` rows of the cache are taken (1 is greedy). `length_penalty` is the exponent alpha that divides a
    hypothesis' log-probability by its length (Wu et al. 2016 in its plain form): 0 ignores length, larger values favour
    longer outputs. `num_hypotheses` of the beam are returned, best first, and cannot exceed `beam_size`.
    `max_new_tokens` counts the end-of-sequence token; 0 is for prompts that are only scored.

    `early_stopping` says when a beam search ends once `beam_size` hypotheses have finished. "always" ends at once, even
    where the best live beam is far better than all of them (docs/decisions/0132-when-beam-search-ends.md).
    "heuristic" goes on while the best live beam, at its present length, scores above the worst of the finished. "never"
    goes on while the best live beam could do so at the greatest length, or for a `length_penalty` of 0 at its present
    one. transformers spells these True, False and "never".

    `suppressed_ids` are never chosen, `first_suppressed_ids` not as the first new token, and none of
    `suppressed_sequences` is written to its end. With `no_repeat_ngram_size`
    n > 0 no n tokens in a row come twice, the prompt included. With `forces_end` the last of `max_new_tokens` is the
    first end token, whatever the model's output, with a log-probability of 0 (`forced_eos_token_id`). The last
    `num_forced_tokens` of the prompt count as tokens of the output where a score is divided by a length
    (`forced_bos_token_id`).
    Raises ValueError for invalid values.
    """

    beam_size: int = 1
    length_penalty: float = 1.0
    num_hypotheses: int = 1
    max_new_tokens: int = 256
    early_stopping: EarlyStopping = "heuristic"
    suppressed_ids: tuple[int, ...] = ()
    first_suppressed_ids: tuple[int, ...] = ()
    suppressed_sequences: tuple[tuple[int, ...], ...] = ()
    no_repeat_ngram_size: int = 0
    forces_end: bool = False
    num_forced_tokens: int = 0

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
        for name in ("max_new_tokens", "no_repeat_ngram_size", "num_forced_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")

    @property
    def is_restricted(self) -> bool:
        """Whether some tokens must not, or must, be chosen."""
        return bool(
            self.suppressed_ids
            or self.first_suppressed_ids
            or self.suppressed_sequences
            or self.no_repeat_ngram_size
            or self.forces_end
        )


class Listener(Protocol):
    """Receives the tokens of a request one by one; see `service.engine.decode.stream`."""

    queue_seconds: float | None
    prompt_log_probs: tuple[PromptToken, ...] | None

    @property
    def inbox(self) -> Inbox:
        """The queue to the event loop that reads them."""
        ...


class Inbox(Protocol):
    """Takes the events of many listeners at once, from any thread."""

    def post(self, deliveries: Iterable[tuple[Any, TokenEvent | None]]) -> None:
        """Post events, each with its listener; None is an end without a token."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingRequest:
    """One sequence to decode: token ids with their special tokens already in place.

    `source_ids` are for a model that reads a source, and None for others. `prompt_ids` begin the output: the prompt
    that a decoder continues, or for a model with a source its begin tokens and a forced prefix. With `ignore_eos` an
    end token is a token like any other. `top_n_tokens` asks for the likeliest tokens of each step, and of each place
    of the prompt with `wants_prompt_log_probs`, for which no cached prefix is reused.

    A beam search neither samples nor scores single tokens. `listener` gets each token as it is chosen; without one
    there is only the result. `deadline` is on `time.monotonic()`'s clock, in seconds; None waits without limit.
    Raises ValueError for invalid values.
    """

    prompt_ids: tuple[int, ...]
    source_ids: tuple[int, ...] | None = None
    options: DecodingOptions = field(default_factory=DecodingOptions)
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    ignore_eos: bool = False
    top_n_tokens: int = 0
    wants_prompt_log_probs: bool = False
    listener: Listener | None = field(default=None, compare=False, repr=False)
    deadline: float | None = None

    def __post_init__(self) -> None:
        options = self.options
        if self.top_n_tokens < 0:
            raise ValueError(f"top_n_tokens is {self.top_n_tokens}; it must be at least 0")
        if not options.max_new_tokens and not self.wants_prompt_log_probs:
            raise ValueError("max_new_tokens is 0; it must be at least 1, or 0 where the prompt is scored")
        if options.beam_size > 1 and (
            self.sampling.do_sample or self.sampling.changes_logits or self.top_n_tokens or self.wants_prompt_log_probs
        ):
            raise ValueError(
                f"beam_size is {options.beam_size}; beam search goes with neither sampling, biases and penalties nor "
                "the scores of single tokens"
            )
        if options.num_forced_tokens > len(self.prompt_ids):
            raise ValueError(
                f"num_forced_tokens is {options.num_forced_tokens}, but the prompt has {len(self.prompt_ids)} tokens"
            )

    @property
    def num_tokens(self) -> int:
        """Tokens to read: those of the source, or of the prompt where there is none."""
        return len(self.prompt_ids) if self.source_ids is None else len(self.source_ids)

    @property
    def num_rows(self) -> int:
        """Rows of the cache that it takes."""
        return self.options.beam_size

    @property
    def num_positions(self) -> int:
        """The positions of a row for its prompt and its longest output, whose last token is not read."""
        return len(self.prompt_ids) + max(0, self.options.max_new_tokens - 1)


class Hypothesis(NamedTuple):
    """One output. `token_ids` has no end token; `finished` is False where it ended at `max_new_tokens`."""

    token_ids: tuple[int, ...]
    score: float
    finished: bool


@dataclass(frozen=True, slots=True)
class Result:
    """The hypotheses of one request, best first, and the time and tokens it took."""

    hypotheses: tuple[Hypothesis, ...]
    queue_seconds: float
    inference_seconds: float
    num_input_tokens: int

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


class TokenEvent(NamedTuple):
    """One token of output, an end token included.

    `log_prob` and those of `top_tokens`, best first, are of the model's distribution over the whole vocabulary, after
    bias, penalties and (where sampling) temperature, as text-generation-inference has them, but before top-k and its
    like. The last event has the finish reason.
    """

    token_id: int
    log_prob: float
    top_tokens: Ranked
    finish_reason: FinishReason | None


class PromptToken(NamedTuple):
    """One token of the prompt, its log-probability after those before it, and the likeliest ones in its place.

    These are the model's own, whatever the sampling options. The first token has None, since no token precedes it.
    """

    token_id: int
    log_prob: float | None
    top_tokens: Ranked
