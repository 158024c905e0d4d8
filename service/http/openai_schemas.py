"""The errors of OpenAI's protocol."""

from __future__ import annotations

from typing import Any

from service.http.schemas import WireModel


class OpenAIError(WireModel):
    """What went wrong, in the words of OpenAI's protocol."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorResponse(WireModel):
    """Every error under /v1/."""

    error: OpenAIError


def openai_error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries for error statuses."""
    return {status: {"model": OpenAIErrorResponse} for status in statuses}
