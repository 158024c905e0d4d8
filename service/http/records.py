"""The record of one request: its id, tokens and times, for the log and the metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import Request
from starlette.types import Scope

from service.engine.decode.types import Hypothesis

_KEY = "record"


class Cost(Protocol):
    """The tokens and times of an engine's result."""

    @property
    def num_input_tokens(self) -> int: ...
    @property
    def queue_seconds(self) -> float: ...
    @property
    def inference_seconds(self) -> float: ...


@dataclass(slots=True)
class RequestRecord:
    """One request's id, tokens and times. Never its text, and never a key.

    `queue_seconds` and `inference_seconds` are the longest of its sentences or inputs, which run side by
    side.
    """

    request_id: str
    started: float = field(default_factory=time.monotonic)
    num_input_tokens: int = 0
    num_output_tokens: int = 0
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0

    def add(self, cost: Cost, hypotheses: Sequence[Hypothesis] = ()) -> None:
        """Add the tokens and times of one sentence, or one input, and the tokens of its outputs."""
        self.num_input_tokens += cost.num_input_tokens
        self.num_output_tokens += sum(len(hypothesis.token_ids) for hypothesis in hypotheses)
        self.add_times(cost.queue_seconds, cost.inference_seconds)

    def add_times(self, queue_seconds: float, inference_seconds: float) -> None:
        """Note the times of one of the sentences or inputs that run side by side."""
        self.queue_seconds = max(self.queue_seconds, queue_seconds)
        self.inference_seconds = max(self.inference_seconds, inference_seconds)


def attach_record(scope: Scope, record: RequestRecord) -> None:
    """Store `record` in the request of `scope`."""
    scope.setdefault("state", {})[_KEY] = record


async def request_record(request: Request) -> RequestRecord:
    """The record that the request-context middleware made for this request."""
    record = getattr(request.state, _KEY)
    assert isinstance(record, RequestRecord)  # only attach_record writes it
    return record
