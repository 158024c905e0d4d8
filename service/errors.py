"""What can go wrong in the service, outside the engine.

    ServiceError
    ├── StartupError                     the server cannot start
    │   └── SettingsError                ... because of its settings, one line for each problem
    ├── InvalidRequestError              a field of the request is invalid
    │   ├── MissingParameterError        ... or leaves out what is needed
    │   ├── UnknownModelError            ... or asks for a model that is not loaded
    │   ├── ModelTaskError               ... or for a model that is loaded for another task
    │   ├── TextTooLongError             ... or exceeds the text or the batch limit
    │   ├── ApiKeyRequiredError          ... or carries no API key where one is needed
    │   └── InputError                   ... or has an input that a model cannot take
    │       ├── EmptyInputError          ... there is nothing in it
    │       ├── ContextLengthError       ... it has more tokens than the model reads
    │       ├── ForeignTokensError       ... its token ids lack the special tokens around a text
    │       └── TokenIdError             ... a token id that the model does not have
    ├── InvalidApiKeyError               the API key is not one of ours
    │   └── MissingRightError            ... or has not the right to what was asked for
    ├── QuotaExceededError               the API key has used what it may in a month
    ├── ForbiddenError                   the server does not do this for anybody
    ├── NotFoundError                    nothing has this name, or no longer
    │   └── NoModelError                 ... no model is loaded for the task
    ├── NotReadyError                    what was asked for is still being made
    ├── NotAcceptableError               the client takes none of the formats that there are
    ├── BodyTooLargeError                more bytes than a body or a file may have
    ├── HeadersTooLargeError             more bytes than a request's headers may have
    ├── SlowHeadersError                 the end of a request's headers did not come in time
    ├── TooManyConnectionsError          the server has as many connections as it may have
    ├── StorageFullError                 the disk for files is full
    ├── SlowdownError                    the client, or all clients together, ask for too much; try again later
    ├── RequestTimeoutError              the request's time is over
    ├── ClientDisconnectedError          the client left before the answer
    ├── UnhealthyError                   a model does not answer
    ├── ModelOutputError                 a model answers, with what is no answer
    └── ShuttingDownError                the server ends, and the time to answer is over

Errors of one head are in its folder and derive from these. None of them has a status code:
`service/http/error_handlers.py` alone maps them, and those of `service.engine.core.errors`.
"""

from __future__ import annotations

import errno
from itertools import islice

_LONGEST_QUOTE = 64
_MAX_SHOWN_LEVELS = 3


def quoted(value: object) -> str:
    """A value as it may appear in a message, truncated where it is long."""
    text = str(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def shown(value: object) -> str:
    """`repr(value)`, quoted as above, without the work for what is cut off: a value may hold hundreds of thousands."""
    return quoted(repr(_beginning(value, _MAX_SHOWN_LEVELS)))


def _beginning(value: object, num_levels: int) -> object:
    if isinstance(value, str):
        return value[: 2 * _LONGEST_QUOTE]
    if not num_levels:
        return "..." if isinstance(value, list | dict) else value
    if isinstance(value, list):
        return [_beginning(item, num_levels - 1) for item in value[:_LONGEST_QUOTE]]
    if isinstance(value, dict):
        return {key: _beginning(item, num_levels - 1) for key, item in islice(value.items(), _LONGEST_QUOTE)}
    return value


class ServiceError(Exception):
    """Base of every error that the service raises on purpose; its message is written for the client."""


class StartupError(ServiceError):
    """The server cannot start; the message says what to do."""


class SettingsError(StartupError):
    """Settings that cannot be used. `problems` has one line for each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class InvalidRequestError(ServiceError):
    """The request cannot be understood or served as it is. `parameter` names the field at fault where there is one."""

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class MissingParameterError(InvalidRequestError):
    """A parameter that is absent, null or empty."""

    def __init__(self, parameter: str) -> None:
        super().__init__(f"Invalid request: missing {parameter} parameter", parameter=parameter)


class UnknownModelError(InvalidRequestError):
    """The request names a model that is not loaded."""

    def __init__(self, name: str, loaded: tuple[str, ...]) -> None:
        super().__init__(
            f"Invalid request: model {quoted(name)!r} is not loaded, choose from: {', '.join(loaded)}",
            parameter="model",
        )


class ModelTaskError(InvalidRequestError):
    """The request names a model that is loaded, but for another task. `suitable` are those that would do."""

    def __init__(self, name: str, task: str, wanted_task: str, suitable: tuple[str, ...]) -> None:
        super().__init__(
            f"Invalid request: model {quoted(name)!r} is for the task {task}, not for {wanted_task}"
            + (f", choose from: {', '.join(suitable)}" if suitable else ", for which no model is loaded"),
            parameter="model",
        )


class TextTooLongError(InvalidRequestError):
    """More characters, or more texts, than a request may have."""

    def __init__(self, size: int, limit: int, *, parameter: str = "q") -> None:
        super().__init__(f"Invalid request: request ({size}) exceeds text limit ({limit})", parameter=parameter)


class ApiKeyRequiredError(InvalidRequestError):
    """The server asks for an API key, and the request has none."""

    def __init__(self) -> None:
        super().__init__(
            "Please contact the server operator to get an API key, and send it as api_key or as Authorization: Bearer",
            parameter="api_key",
        )


class InputError(InvalidRequestError):
    """An input of the model, or an option for it, that cannot be served: what TEI and TGI call validation."""


class EmptyInputError(InputError):
    """No input, or one with nothing in it."""

    def __init__(self, parameter: str) -> None:
        super().__init__(f"`{parameter}` cannot be empty", parameter=parameter)


class ContextLengthError(InputError):
    """An input that is longer than the model reads, or leaves less room than is asked for."""


def check_num_values(num_values: int, limit: int, *, parameter: str) -> None:
    """InputError for an answer that would hold more numbers than `limit`."""
    if num_values > limit:
        raise InputError(
            f"Input validation error: the answer to `{parameter}` would hold {num_values} numbers, allowed: {limit}. "
            "Send fewer or shorter inputs at a time",
            parameter=parameter,
        )


class TokenIdError(InputError):
    """A token id that is not in the model's vocabulary."""

    def __init__(self, token_id: int, vocab_size: int, *, parameter: str) -> None:
        super().__init__(
            f"Tokenizer error: `{parameter}` has the token id {quoted(token_id)}, allowed: 0 to {vocab_size - 1}",
            parameter=parameter,
        )


class ForeignTokensError(InputError):
    """Token ids without the special tokens that the tokenizer puts `before` and `after` a text.

    So they are not what the model reads, and mostly another tokenizer's.
    """

    def __init__(self, before: tuple[int, ...], after: tuple[int, ...], *, parameter: str) -> None:
        wanted = " and ".join(f"{verb} with {list(ids)}" for verb, ids in (("begin", before), ("end", after)) if ids)
        super().__init__(
            f"Input validation error: `{parameter}` has token ids that do not {wanted}, as /tokenize gives them, so "
            "they may be another tokenizer's. Send texts instead (LangChain's OpenAIEmbeddings: "
            "check_embedding_ctx_length=False)",
            parameter=parameter,
        )


class InvalidApiKeyError(ServiceError):
    """The request carries a key that is not one of the server's."""

    def __init__(self) -> None:
        super().__init__("Invalid API key")


class MissingRightError(InvalidApiKeyError):
    """The request carries a key that may not do what was asked for."""

    def __init__(self, name: str, right: str) -> None:
        ServiceError.__init__(self, f"The API key {name!r} has not the right to {right}")


class QuotaExceededError(ServiceError):
    """The characters of the request are more than its API key may still use this month."""

    def __init__(self, used: int, wanted: int, limit: int) -> None:
        super().__init__(
            f"The API key has used {used} of its {limit} characters this month, and the request has {wanted} more"
        )


class ForbiddenError(ServiceError):
    """The server does not do this, whoever asks."""


class NotFoundError(ServiceError):
    """Nothing has the name that was asked for."""


class NoModelError(NotFoundError):
    """No model is loaded for the task that the path is for."""

    def __init__(self, task: str) -> None:
        super().__init__(
            f"No model for the task {task} is loaded: add a bundle of one to the folder POLYHEAD_BUNDLES (--bundles)"
        )
        self.task = task


class NotReadyError(ServiceError):
    """The result that was asked for is not there yet; ask again later."""


class NotAcceptableError(ServiceError):
    """None of the formats in the request's Accept header can be made."""


class BodyTooLargeError(ServiceError):
    """The body, or the file in it, has more bytes than is allowed."""

    def __init__(self, limit_bytes: int, *, what: str = "request body") -> None:
        super().__init__(f"Invalid request: the {what} exceeds the limit of {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class HeadersTooLargeError(ServiceError):
    """The request line and the headers have more bytes than is allowed."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"Invalid request: the headers exceed the limit of {limit_bytes} bytes")


class SlowHeadersError(ServiceError):
    """The end of the headers did not come in time."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"The headers of the request did not end within {timeout_seconds:g} seconds")


class TooManyConnectionsError(ServiceError):
    """The server has as many connections as it may have."""

    def __init__(self) -> None:
        super().__init__("The server has no room for another connection, try again later")


class StorageFullError(ServiceError):
    """The disk that uploads and translated files are written to is full."""

    def __init__(self) -> None:
        super().__init__("There is no space for files on the server's disk; please tell its operator")


def is_full(error: OSError) -> bool:
    """Whether a file could not be written because the disk, or the user's share of it, is full."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


class SlowdownError(ServiceError):
    """Too many requests. `retry_after_seconds` is when to retry."""

    def __init__(self, reason: str, *, retry_after_seconds: float) -> None:
        super().__init__(f"Slowdown: {reason}")
        self.retry_after_seconds = retry_after_seconds


class RequestTimeoutError(ServiceError):
    """The request was not finished in the time that requests have."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"The request was not finished within {timeout_seconds:g} seconds")


class ClientDisconnectedError(ServiceError):
    """The client closed the connection."""

    def __init__(self) -> None:
        super().__init__("The client closed the connection before the answer")


class ShuttingDownError(ServiceError):
    """The server is ending, and had no time left to finish this request."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down")


class ModelOutputError(ServiceError):
    """The model computed something that is no answer, such as numbers that are not finite."""


class UnhealthyError(ServiceError):
    """A model does not answer. `models` has the state of each."""

    def __init__(self, status: str, models: dict[str, str]) -> None:
        super().__init__(status)
        self.models = models
