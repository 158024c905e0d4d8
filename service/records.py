"""What is known of one request while it is served: its id, and what it cost. It ends in the log and the metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import Scope

from service.engine.attention import AttentionResult
from service.engine.embedding import EmbeddingResult
from service.engine.types import GenerationResult

_KEY = "record"


@dataclass(slots=True)
class RequestRecord:
    """One request's identity and cost. Never its text, and never a key.

    `queue_seconds` and `inference_seconds` are the longest of its sentences or inputs, which run side by
    side.
    """

    request_id: str
    started: float = field(default_factory=time.monotonic)
    num_input_tokens: int = 0
    num_output_tokens: int = 0
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0

    def add(self, result: GenerationResult | EmbeddingResult | AttentionResult) -> None:
        """Count one sentence, or one input."""
        self.num_input_tokens += result.num_input_tokens
        if isinstance(result, GenerationResult):
            self.num_output_tokens += sum(len(hypothesis.token_ids) for hypothesis in result.hypotheses)
        self.add_times(result.queue_seconds, result.inference_seconds)

    def add_times(self, queue_seconds: float, inference_seconds: float) -> None:
        """Take note of how long one of those that run side by side has waited and run."""
        self.queue_seconds = max(self.queue_seconds, queue_seconds)
        self.inference_seconds = max(self.inference_seconds, inference_seconds)


def attach_record(scope: Scope, record: RequestRecord) -> None:
    """Tie `record` to the request of `scope`."""
    scope.setdefault("state", {})[_KEY] = record


async def request_record(request: Request) -> RequestRecord:
    """The record that the request-context middleware made for this request."""
    record = getattr(request.state, _KEY)
    assert isinstance(record, RequestRecord)  # only attach_record writes it
    return record
