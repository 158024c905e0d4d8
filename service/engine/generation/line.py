"""The waiting line of generation: rows, and the positions of the cache that a request may come to need."""

from __future__ import annotations

from dataclasses import dataclass

from service.engine import line
from service.engine.errors import RequestTooLargeError
from service.engine.generation.stream import GenerationStream
from service.engine.generation.types import GenerationRequest
from service.engine.types import GenerationResult
from service.engine.waiting import EngineLimits, RowLine


@dataclass(frozen=True, slots=True)
class Job:
    """A request, and the stream that its tokens go to; None for a search, whose result comes whole."""

    request: GenerationRequest
    stream: GenerationStream | None

    @property
    def num_tokens(self) -> int:
        return self.request.num_tokens

    @property
    def deadline(self) -> float | None:
        return self.request.deadline

    @property
    def num_rows(self) -> int:
        return self.request.beam_size

    @property
    def num_cached_tokens(self) -> int:
        """Positions of the cache that it may come to fill, in all its rows."""
        return self.num_rows * self.request.num_total_tokens


Ticket = line.Ticket[Job, GenerationResult]


@dataclass(frozen=True, slots=True)
class GenerationLimits(EngineLimits):
    """Bounds of one engine."""

    max_batch_tokens: int = 256
    """Tokens of prompts, padding included, that are computed between two steps of the streams that run."""
    max_cached_tokens: int = 65_536
    """Positions of the cache that the rows of each loop may come to fill: no stream ever waits for memory half-way."""
    max_prefix_tokens: int = 8192
    """Positions of finished rows that are kept, for prompts that begin as they did; 1 keeps none."""


class GenerationLine(RowLine[Job, GenerationResult]):
    """Prompts that wait for rows and positions of the cache."""

    _limits: GenerationLimits

    def __init__(self, limits: GenerationLimits, num_loops: int, max_total_tokens: int) -> None:
        super().__init__(limits, num_loops, max_total_tokens, "prompt")
        self._cached_tokens = [0] * num_loops

    def _check_size(self, request: Job) -> None:
        # Not the base's check: a prompt longer than a batch is cut into several.
        if not request.num_tokens:
            raise RequestTooLargeError("prompt of 0 tokens: there is nothing to continue")
        if request.request.num_total_tokens > self._max_input_tokens:
            raise RequestTooLargeError(
                f"prompt of {request.num_tokens} tokens and {request.request.max_new_tokens} new tokens exceed the "
                f"model's {self._max_input_tokens} positions"
            )
        if request.num_cached_tokens > self._limits.max_cached_tokens:
            raise RequestTooLargeError(
                f"{request.num_cached_tokens} tokens, prompt and new ones of all beams, exceed the "
                f"{self._limits.max_cached_tokens} positions of one loop's cache"
            )

    def _has_room(self, loop: int, ticket: Ticket) -> bool:
        tokens = self._cached_tokens[loop] + ticket.request.num_cached_tokens
        if tokens > self._limits.max_cached_tokens:
            return False
        self._cached_tokens[loop] = tokens
        return True

    def take_for(self, loop: int, active_rows: int, cached_tokens: int) -> list[Ticket] | None:
        """As `take`, for a loop whose sequences may come to fill `cached_tokens` positions."""
        self._cached_tokens[loop] = cached_tokens  # read and written by this loop alone
        return self.take(loop, active_rows)
