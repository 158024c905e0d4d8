"""What only a translation can fail with."""

from __future__ import annotations

from service.errors import InvalidRequestError, quoted


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
