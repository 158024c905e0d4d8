"""What can go wrong inside the engine.

    EngineError
    ├── OverloadedError         the queue is full; try again later
    ├── RequestTooLargeError    the request could never be admitted, however long it waited
    ├── DeadlineError           the request's deadline passed before it was finished
    ├── InvalidOutputError      the model gave no numbers, so that no token could be chosen
    └── ModelUnavailableError   the engine's loop has died, is draining or is closed

The engine knows no HTTP: the service maps these to statuses in one place, `service/http/error_handlers.py`.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of every error that the engine raises on purpose."""


class OverloadedError(EngineError):
    """The waiting line is full. `retry_after_seconds` is when a retry is likely to be admitted."""

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RequestTooLargeError(EngineError):
    """The request exceeds a limit of the engine itself, so waiting would not help."""


class DeadlineError(EngineError):
    """The request's deadline passed while it waited or ran; its rows have been freed."""


class ModelUnavailableError(EngineError):
    """The engine cannot take work: its loop died, it is draining, or it was closed."""


NO_NUMBER = "the model's output is not a number, so no token can be chosen by it"


class InvalidOutputError(EngineError):
    """The model's output was not a number: nothing can be chosen by it. Weights or a precision are at fault."""
