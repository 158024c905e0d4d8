"""Generation tasks, independent of the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.types import DecodingOptions, DecodingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as the model reads it, and as the client wrote it: its text, or the text of its token ids.

    One that `is_cut` had more tokens than the client wanted to be read.
    """

    token_ids: tuple[int, ...]
    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationTask:
    """One prompt to continue `num_candidates` times, of which `num_outputs` are wanted.

    With `is_ranked` those are the best, by the mean log-probability of a token, best first; else the first.
    `keeps_stop`: see `StopMatcher`. With `beam_size` above 1 the outputs are the best hypotheses of one beam search
    instead. `deadline` is on `time.monotonic()`'s clock.
    """

    prompt: Prompt
    max_new_tokens: int
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    stops: tuple[str, ...] = ()
    keeps_stop: bool = False
    top_n_tokens: int = 0
    wants_prompt_log_probs: bool = False
    num_outputs: int = 1
    num_candidates: int = 1
    is_ranked: bool = False
    beam_size: int = 1
    length_penalty: float = 1.0
    deadline: float | None = None

    def request(self, number: int = 0) -> DecodingRequest:
        """What the engine gets for candidate `number`: the same but for its seed."""
        return DecodingRequest(
            prompt_ids=self.prompt.token_ids,
            options=DecodingOptions(
                beam_size=self.beam_size,
                length_penalty=self.length_penalty,
                num_hypotheses=self.num_outputs if self.beam_size > 1 else 1,
                max_new_tokens=self.max_new_tokens,
            ),
            sampling=replace(self.sampling, seed=self.seed(number)),
            top_n_tokens=self.top_n_tokens,
            wants_prompt_log_probs=self.wants_prompt_log_probs,
            deadline=self.deadline,
        )

    def seed(self, number: int) -> int | None:
        """The seed of candidate `number`; the first has the one that was asked for."""
        seed = self.sampling.seed
        return None if seed is None else (seed + number) % 2**64
