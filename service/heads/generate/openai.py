"""Continuations as answers of OpenAI's protocols."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.heads.generate.pieces import as_label
from service.heads.generate.tasks import Prompt
from service.heads.generate.text_stream import Continuation, FinishReason, ScoredToken, TextToken, TopToken
from service.version import version

Json = dict[str, Any]

_FINGERPRINT = f"polyhead-{version()}"
"""What computed an answer: with the same seed another version may give another one."""


def finish_reason(reason: FinishReason | None) -> str | None:
    """OpenAI's finish reason: "length", or "stop" for an end token and a stop sequence alike."""
    return reason if reason is None or reason == "length" else "stop"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all chunks of one answer have in common."""

    kind: str
    model: str
    id_prefix: str
    created: int = field(default_factory=lambda: int(time.time()))
    key: str = field(default_factory=lambda: secrets.token_hex(12))

    def around(self, choices: Sequence[Json], **more: Any) -> Json:
        """The answer, or one of its chunks."""
        return {
            "id": f"{self.id_prefix}-{self.key}",
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": _FINGERPRINT,
            "choices": list(choices),
            **more,
        }


def usage(num_prompt_tokens: int, num_new_tokens: int) -> Json:
    """Tokens read and generated."""
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_new_tokens,
        "total_tokens": num_prompt_tokens + num_new_tokens,
    }


def tokens_of_text(output: Continuation) -> list[TextToken]:
    """The tokens of a whole continuation's text: neither the end token, nor those of a stop sequence."""
    if output.finish_reason == "stop_sequence":
        return [token for token in output.tokens if token.offset < len(output.text)]
    return list(output.tokens[:-1] if output.finish_reason == "eos_token" else output.tokens)


def completion_logprobs(
    echoed: Prompt | None, scored: Sequence[ScoredToken], tokens: Sequence[TextToken], num_top: int, start: int
) -> Json:
    """The log-probabilities of an `echoed` prompt's tokens, and then of output that begins at `start` of the text."""
    listed: list[ScoredToken | TextToken] = []
    offsets: list[int] = []
    if echoed is not None:
        listed += scored
        # The text of the tokens may differ from that of the client, by a space at its beginning for instance.
        offsets += [min(token.offset, len(echoed.text)) for token in scored]
    listed += tokens
    offsets += [start + token.offset for token in tokens]
    return {
        "tokens": [as_label(token.surface) for token in listed],
        "token_logprobs": [token.log_prob for token in listed],
        "top_logprobs": [_top_logprobs(token, num_top) for token in listed],
        "text_offset": offsets,
    }


def completion_choice(
    index: int,
    text: str,
    reason: FinishReason | None,
    tokens: Sequence[TextToken],
    *,
    prompt: Prompt,
    scored: Sequence[ScoredToken],
    echoes: bool,
    num_logprobs: int | None,
    is_first: bool = True,
) -> Json:
    """A choice of /v1/completions, or the part of it that a chunk brings; the first one brings the echo."""
    echoed = prompt if echoes and is_first else None
    logprobs = None
    if num_logprobs is not None:
        start = len(prompt.text) if echoes else 0
        logprobs = completion_logprobs(echoed, scored, tokens, num_logprobs, start)
    return {
        "index": index,
        "text": text if echoed is None else echoed.text + text,
        "logprobs": logprobs,
        "finish_reason": finish_reason(reason),
    }


def _top_logprobs(token: TextToken | ScoredToken, num_top: int) -> dict[str, float] | None:
    """The likeliest tokens, and the one that stands there, which may be none of them."""
    if token.log_prob is None:
        return None
    found: dict[str, float] = {}
    for top in token.top_tokens[:num_top]:
        found.setdefault(as_label(top.surface), top.log_prob)
    return found | {as_label(token.surface): token.log_prob}


def chat_logprobs(tokens: Iterable[TextToken], num_top: int) -> Json:
    """The same as chats have them."""
    return {
        "content": [
            _chat_token(token) | {"top_logprobs": [_chat_token(top) for top in token.top_tokens[:num_top]]}
            for token in tokens
        ]
    }


def _chat_token(token: TextToken | TopToken) -> Json:
    return {"token": as_label(token.surface), "logprob": token.log_prob, "bytes": list(token.surface)}
