"""The chunks of a streamed answer in OpenAI's protocols, for each choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from service.heads.generate.openai import chat_logprobs, completion_choice, finish_reason
from service.heads.generate.tasks import Prompt
from service.heads.generate.text_stream import FinishReason, TextStream, TextToken

Json = dict[str, Any]

DONE = b"[DONE]"
"""The last event of a stream."""


class PendingTokens:
    """Which tokens belong to the text that has been released so far: as `tokens_of_text`, while it grows.

    A token waits while its characters do.
    """

    def __init__(self) -> None:
        self._waiting: list[TextToken] = []
        self._length = 0

    def take(self, token: TextToken) -> list[TextToken]:
        """The tokens that belong to the text, now that it has grown by that of `token`."""
        if token.finish_reason != "eos_token":
            self._waiting.append(token)
        self._length += len(token.text)
        if token.finish_reason in ("eos_token", "length"):
            ready = self._waiting  # also those of no characters
        else:
            ready = [waiting for waiting in self._waiting if waiting.offset < self._length]
        self._waiting = self._waiting[len(ready) :]
        return ready


class CompletionWriter:
    """Writes one choice of /v1/completions."""

    def __init__(self, index: int, stream: TextStream, prompt: Prompt, echoes: bool, num_logprobs: int | None) -> None:
        self._index = index
        self._stream = stream
        self._prompt = prompt
        self._echoes = echoes
        self._num_logprobs = num_logprobs
        self._pending = PendingTokens()
        self._is_first = True
        self._is_finished = False

    def write(self, token: TextToken) -> Json | None:
        """The chunk for a token; None where there is no text yet."""
        ready = self._pending.take(token)
        self._is_finished = token.finish_reason is not None
        brings = token.text or self._is_finished or (self._echoes and self._is_first)
        return self._part(token.text, ready, token.finish_reason) if brings else None

    def finish(self) -> Json | None:
        """The last chunk of a choice without tokens, of which only the prompt was asked for."""
        return None if self._is_finished else self._part("", [], self._stream.finish_reason)

    def _part(self, text: str, tokens: list[TextToken], reason: FinishReason | None) -> Json:
        is_first, self._is_first = self._is_first, False
        return completion_choice(
            self._index,
            text,
            reason,
            tokens,
            prompt=self._prompt,
            scored=self._stream.scored_prompt() if is_first and self._echoes else (),
            echoes=self._echoes,
            num_logprobs=self._num_logprobs,
            is_first=is_first,
        )


class ChatWriter:
    """Writes one choice of /v1/chat/completions: the role, then the text, then the finish reason."""

    def __init__(self, index: int, num_logprobs: int | None) -> None:
        self._index = index
        self._num_logprobs = num_logprobs
        self._pending = PendingTokens()
        self._is_first = True

    def write(self, token: TextToken) -> Iterator[Json]:
        """The chunks for a token: none, one or more."""
        ready = self._pending.take(token)
        if self._is_first:
            self._is_first = False
            yield self._part({"role": "assistant", "content": ""})
        if token.text or ready:
            yield self._part({"content": token.text}, ready)
        if token.finish_reason is not None:
            yield self._part({}, reason=token.finish_reason)

    def _part(self, delta: Json, tokens: list[TextToken] | None = None, reason: FinishReason | None = None) -> Json:
        logprobs = chat_logprobs(tokens, self._num_logprobs) if tokens and self._num_logprobs is not None else None
        return {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason(reason)}
