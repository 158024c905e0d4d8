"""What can go wrong in the service, outside the engine.

    ServiceError
    ├── StartupError                     the server cannot start
    │   └── SettingsError                ... because of its settings, one line for each problem
    ├── InvalidRequestError              the request says something that cannot be
    │   ├── MissingParameterError        ... or leaves out what is needed
    │   ├── UnsupportedLanguageError     ... or asks for a language that no model knows
    │   ├── UnavailableDirectionError    ... or for a pair of known languages that no model translates
    │   ├── UnknownModelError            ... or for a model that is not loaded
    │   ├── ModelTaskError               ... or for a model that is loaded for another task
    │   ├── TextTooLongError             ... or exceeds the text or the batch limit
    │   ├── ApiKeyRequiredError          ... or carries no API key where one is needed
    │   └── InputError                   ... or has an input that a model cannot take
    │       ├── EmptyInputError          ... there is nothing in it
    │       └── TokenIdError             ... a token id that the model does not have
    ├── InvalidApiKeyError               the API key is not one of ours
    ├── NotFoundError                    nothing has this name, or no longer
    │   ├── NoModelError                 ... no model is loaded for the task
    │   └── NoAttentionError             ... the model's bundle has no attention graph
    ├── NotAcceptableError               the client takes none of the formats that there are
    ├── BodyTooLargeError                more bytes than a body or a file may have
    ├── SlowdownError                    the client, or all clients together, ask for too much; try again later
    ├── RequestTimeoutError              the request's time is over
    ├── ClientDisconnectedError          the client left before the answer
    ├── UnhealthyError                   a model does not answer
    ├── ModelOutputError                 a model answers, with what is no answer
    └── ShuttingDownError                the server ends, and the time to answer is over

None of these knows a status code: `service/error_handlers.py` alone maps them, and those of `service.engine.errors`.
"""

from __future__ import annotations

_LONGEST_QUOTE = 64


def quoted(value: object) -> str:
    """A value as it may appear in a message: whole when it is short, cut when somebody sent a novel."""
    text = str(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


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


class UnsupportedLanguageError(InvalidRequestError):
    """A language code that no loaded model knows."""

    def __init__(self, code: str, *, parameter: str) -> None:
        super().__init__(f"{quoted(code)} is not supported", parameter=parameter)


class UnavailableDirectionError(InvalidRequestError):
    """Both languages are known, but no model translates from the one to the other. Languages are (name, code)."""

    def __init__(self, source: tuple[str, str], target: tuple[str, str]) -> None:
        super().__init__(
            f"{target[0]} ({target[1]}) is not available as a target language from {source[0]} ({source[1]})",
            parameter="target",
        )


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

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"Invalid request: request ({size}) exceeds text limit ({limit})", parameter="q")


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


class TokenIdError(InputError):
    """A token id that is not in the model's vocabulary."""

    def __init__(self, token_id: int, vocab_size: int, *, parameter: str) -> None:
        super().__init__(
            f"Tokenizer error: `{parameter}` has the token id {quoted(token_id)}, allowed: 0 to {vocab_size - 1}",
            parameter=parameter,
        )


class InvalidApiKeyError(ServiceError):
    """The request carries a key that is not one of the server's."""

    def __init__(self) -> None:
        super().__init__("Invalid API key")


class NotFoundError(ServiceError):
    """Nothing has the name that was asked for."""


class NoModelError(NotFoundError):
    """No model is loaded for the task that the path is for."""

    def __init__(self, task: str) -> None:
        super().__init__(
            f"No model for the task {task} is loaded: add a bundle of one to the folder POLYHEAD_BUNDLES (--bundles)"
        )
        self.task = task


class NoAttentionError(NotFoundError):
    """The model is loaded, but cannot show its attention."""

    def __init__(self, model_name: str) -> None:
        super().__init__(
            f"The bundle of the model {model_name} has no attention graph: export its checkpoint again with --attention"
        )


class NotAcceptableError(ServiceError):
    """None of the formats in the request's Accept header can be made."""


class BodyTooLargeError(ServiceError):
    """The body, or the file in it, has more bytes than is allowed."""

    def __init__(self, limit_bytes: int, *, what: str = "request body") -> None:
        super().__init__(f"Invalid request: the {what} exceeds the limit of {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class SlowdownError(ServiceError):
    """Too much is being asked for. `retry_after_seconds` says when to come back."""

    def __init__(self, reason: str, *, retry_after_seconds: float) -> None:
        super().__init__(f"Slowdown: {reason}")
        self.retry_after_seconds = retry_after_seconds


class RequestTimeoutError(ServiceError):
    """The request was not finished in the time that requests have."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"The request was not finished within {timeout_seconds:g} seconds")


class ClientDisconnectedError(ServiceError):
    """The client closed the connection; nobody reads the answer."""

    def __init__(self) -> None:
        super().__init__("The client closed the connection before the answer")


class ShuttingDownError(ServiceError):
    """The server is ending, and had no time left to finish this request."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down")


class ModelOutputError(ServiceError):
    """The model computed something that is no answer, such as numbers that are not finite."""


class UnhealthyError(ServiceError):
    """A model does not answer. `models` says what each is doing."""

    def __init__(self, status: str, models: dict[str, str]) -> None:
        super().__init__(status)
        self.models = models
