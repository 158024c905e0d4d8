"""The record of one request: its id, tokens and times, for the log and the metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import Request
from starlette.types import Scope

from service.engine.decode.types import Hypothesis
from service.http.usage import Account

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
    side. `account` is that of its key, and `charged` the months and characters that are charged to it.
    """

    request_id: str
    started: float = field(default_factory=time.monotonic)
    num_input_tokens: int = 0
    num_output_tokens: int = 0
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0
    account: Account | None = None
    num_characters: int = 0
    charged: list[tuple[str, int]] = field(default_factory=list)

    def charge(self, num_characters: int) -> None:
        """Count characters that will be worked on; token ids count as characters.

        QuotaExceededError where the key may not use so many more this month.
        """
        if self.account is not None:
            self.charged.append((self.account.book.charge(self.account.key, num_characters), num_characters))
        self.num_characters += num_characters

    def refund(self) -> None:
        """Take back what was charged, because nothing came of it."""
        for month, num_characters in self.charged:
            assert self.account is not None  # it has been charged
            self.account.book.refund(self.account.key.name, month, num_characters)
        self.charged.clear()

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
