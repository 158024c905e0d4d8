"""What only a translation can fail with."""

from __future__ import annotations

from service.errors import InvalidRequestError, quoted


class UnsupportedLanguageError(InvalidRequestError):
    """A language code that no loaded model knows."""

    def __init__(self, code: str, *, parameter: str) -> None:
        super().__init__(f"{quoted(code)} is not supported", parameter=parameter)


class TooLongToTranslateError(InvalidRequestError):
    """The text would take so long that it could not be finished."""

    def __init__(self, estimate_seconds: float, allowed_seconds: float) -> None:
        super().__init__(
            f"Invalid request: the text would take about {estimate_seconds:.0f} seconds at the speed that was measured "
            f"last, and a request may take {allowed_seconds:.0f}: send it in parts",
            parameter="q",
        )


class UnavailableDirectionError(InvalidRequestError):
    """Both languages are known, but no model translates from the one to the other. Languages are (name, code)."""

    def __init__(self, source: tuple[str, str], target: tuple[str, str]) -> None:
        super().__init__(
            f"{target[0]} ({target[1]}) is not available as a target language from {source[0]} ({source[1]})",
            parameter="target",
        )
