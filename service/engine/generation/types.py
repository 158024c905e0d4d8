"""The generation engine's vocabulary: what goes in and what comes out, as plain immutable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from service.engine.sampling.chooser import Ranked
from service.engine.sampling.options import SamplingOptions
from service.engine.types import DecodingOptions

FinishReason = Literal["eos_token", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt to continue: token ids with their special tokens already in place.

    `max_new_tokens` counts the end-of-sequence token; it may be 0 where only the prompt is to be scored. With
    `ignore_eos` an end token is a token like any other. `top_n_tokens` asks for the likeliest tokens of each step, and
    of each place of the prompt with `wants_prompt_log_probs`, which reads the prompt whole, whatever is known of it.

    `beam_size`, `length_penalty` and `num_hypotheses` are for `GenerationEngine.search`, which neither samples nor
    scores; see `DecodingOptions`. `deadline` is a point on `time.monotonic()`'s clock, in seconds; None waits for ever.
    Raises ValueError for values that cannot be.
    """

    input_ids: tuple[int, ...]
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    max_new_tokens: int = 256
    ignore_eos: bool = False
    top_n_tokens: int = 0
    wants_prompt_log_probs: bool = False
    beam_size: int = 1
    length_penalty: float = 1.0
    num_hypotheses: int = 1
    deadline: float | None = None

    def __post_init__(self) -> None:
        if self.top_n_tokens < 0:
            raise ValueError(f"top_n_tokens is {self.top_n_tokens}; it must be at least 0")
        if self.max_new_tokens < (0 if self.wants_prompt_log_probs else 1):
            raise ValueError(
                f"max_new_tokens is {self.max_new_tokens}; it must be at least 1, or 0 where the prompt is scored"
            )
        if self.beam_size > 1 and (
            self.sampling.do_sample or self.sampling.changes_logits or self.top_n_tokens or self.wants_prompt_log_probs
        ):
            raise ValueError(
                f"beam_size is {self.beam_size}; beam search goes with neither sampling, biases and penalties nor the "
                "scores of single tokens"
            )
        self._decoding(max(1, self.max_new_tokens))

    def _decoding(self, max_new_tokens: int) -> DecodingOptions:
        return DecodingOptions(self.beam_size, self.length_penalty, self.num_hypotheses, max_new_tokens)

    @property
    def decoding(self) -> DecodingOptions:
        """The options of its beam search."""
        return self._decoding(self.max_new_tokens)

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def num_total_tokens(self) -> int:
        """The positions that its prompt and its longest output take."""
        return len(self.input_ids) + self.max_new_tokens


class TokenEvent(NamedTuple):
    """One token of output, an end token included.

    `log_prob` and those of `top_tokens`, best first, are of the model's distribution over the whole vocabulary, after
    bias, penalties and (where sampling) temperature, as text-generation-inference has them, but before top-k and its
    like cut anything off. The last event says why it is the last.
    """

    token_id: int
    log_prob: float
    top_tokens: Ranked
    finish_reason: FinishReason | None


class PromptToken(NamedTuple):
    """One token of the prompt, its log-probability after those before it, and the likeliest ones in its place.

    These are the model's own, whatever the sampling options. The first token has none: nothing stands before it.
    """

    token_id: int
    log_prob: float | None
    top_tokens: Ranked
