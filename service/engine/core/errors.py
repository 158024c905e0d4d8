"""The errors of the engines.

    EngineError
    ├── OverloadedError         the queue is full; try again later
    ├── RequestTooLargeError    the request could never be admitted, however long it waited
    ├── DeadlineError           the request's deadline passed before it was finished
    ├── InvalidOutputError      the model's output is NaN, so that no token could be chosen
    └── ModelUnavailableError   an engine thread has failed, or the engine is draining or closed

The engine knows no HTTP: the service maps these to statuses in one place, `service/http/error_handlers.py`.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of every error that the engine raises on purpose."""


class OverloadedError(EngineError):
    """The queue is full. `retry_after_seconds` is after how long a retry is likely to be admitted."""

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RequestTooLargeError(EngineError):
    """The request exceeds a limit of the engine itself: no retry can succeed."""


class DeadlineError(EngineError):
    """The request's deadline passed while it waited or ran; its rows have been freed."""


class ModelUnavailableError(EngineError):
    """The engine admits no requests: one of its threads has failed, it is draining, or it is closed."""


NO_NUMBER = "the model's output is not a number, so no token can be chosen by it"


class InvalidOutputError(EngineError):
    """The model's output is NaN, so that no token can be chosen. Weights or a precision are at fault."""
