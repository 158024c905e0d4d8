"""The text of one streamed continuation: tokens to increments of text, up to a stop sequence."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from service.engine.decode.types import PromptToken, TokenEvent
from service.heads.generate.detokenizer import Detokenizer
from service.heads.generate.model import TokenStream
from service.heads.generate.pieces import TokenPieces
from service.heads.generate.stops import StopMatcher
from service.http.records import RequestRecord

FinishReason = Literal["eos_token", "length", "stop_sequence"]


class TopToken(NamedTuple):
    """One of the likeliest tokens in a place, and its bytes, as `TokenPieces.surface` has them."""

    token_id: int
    surface: bytes
    log_prob: float
    is_special: bool


class TextToken(NamedTuple):
    """One token of a continuation, and what its coming makes certain of the text.

    `text` is an increment: all of them, joined, are the whole text. It is "" while a character is incomplete or may be
    the beginning of a stop sequence. `surface` are the token's own bytes, special ones spelled out. `offset` is where
    the token's own characters begin in the text of all tokens, counted from the continuation's beginning, whether they
    are in its final text or not.
    """

    token_id: int
    text: str
    surface: bytes
    log_prob: float
    offset: int
    is_special: bool
    top_tokens: tuple[TopToken, ...] = ()
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """One token of a prompt; the first has no log-probability. The rest as `TextToken` has it."""

    token_id: int
    surface: bytes
    log_prob: float | None
    offset: int
    top_tokens: tuple[TopToken, ...]


@dataclass(frozen=True, slots=True)
class Continuation:
    """A whole continuation. `prompt` is empty where its scores were not asked for."""

    text: str
    tokens: tuple[TextToken, ...]
    num_tokens: int
    finish_reason: FinishReason
    mean_log_prob: float
    prompt: tuple[ScoredToken, ...] = ()
    seed: int | None = None


class TextStream:
    """An asynchronous iterator over the tokens of one continuation, for one reader, who calls `aclose` at the end.

    The engine's stream is closed as soon as a stop sequence is found, so that its row is free for others. Its time
    and tokens are added to `record`. Raises what the engine's stream raises.
    """

    def __init__(
        self,
        stream: TokenStream,
        pieces: TokenPieces,
        prompt_ids: Sequence[int],
        stops: StopMatcher,
        record: RequestRecord,
        seed: int | None = None,
    ) -> None:
        self.num_tokens = 0
        self.seed = seed
        self._stream = stream
        self._pieces = pieces
        self._detokenizer = Detokenizer(pieces, prompt_ids)
        self._stops = stops
        self._parts: list[str] = []
        self._num_characters = 0
        self._finish_reason: FinishReason | None = None
        self._record = record
        self._opened = time.monotonic()
        self._is_closed = False

    @property
    def text(self) -> str:
        """All increments so far."""
        return "".join(self._parts)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it has not."""
        return self._finish_reason

    def __aiter__(self) -> TextStream:
        return self

    async def __anext__(self) -> TextToken:
        if self._finish_reason is not None:
            raise StopAsyncIteration
        try:
            event = await anext(self._stream)
        except StopAsyncIteration:
            self._finish_reason = "length"  # no token was asked for, only the prompt's scores
            raise
        token = self._read(event)
        self._record.num_output_tokens += 1
        if token.finish_reason is not None:
            self._finish_reason = token.finish_reason
            await self.aclose()
        return token

    async def aclose(self) -> None:
        """Cancel what is left. May be called again."""
        await self._stream.aclose()
        queue_seconds = self._stream.queue_seconds or 0.0
        if not self._is_closed:
            self._is_closed = True
            self._record.add_times(queue_seconds, time.monotonic() - self._opened - queue_seconds)

    async def collect(self) -> Continuation:
        """Read to the end."""
        tokens = tuple([token async for token in self])
        assert self._finish_reason is not None  # or reading would have raised
        return Continuation(
            text=self.text,
            tokens=tokens,
            num_tokens=len(tokens),
            finish_reason=self._finish_reason,
            mean_log_prob=math.fsum(token.log_prob for token in tokens) / max(1, len(tokens)),
            prompt=self.scored_prompt(),
            seed=self.seed,
        )

    def scored_prompt(self) -> tuple[ScoredToken, ...]:
        """The tokens of the prompt, from the first token of output on, where their scores were asked for."""
        return score_prompt(self._pieces, self._stream.prompt_log_probs or ())

    def _read(self, event: TokenEvent) -> TextToken:
        self.num_tokens += 1
        pieces, previous = self._pieces, self._detokenizer.previous
        offset = self._num_characters
        # An end token ends the text and is no part of it, special or not.
        new = "" if event.finish_reason == "eos_token" else self._detokenizer.push(event.token_id)
        reason: FinishReason | None = event.finish_reason
        if reason is not None:
            new += self._detokenizer.flush()
        self._num_characters += len(new)
        text = self._stops.push(new)
        if self._stops.is_found:
            reason = "stop_sequence"
        elif reason is not None:
            text += self._stops.flush()
        self._parts.append(text)
        return TextToken(
            token_id=event.token_id,
            text=text,
            surface=pieces.surface(event.token_id, previous),
            log_prob=event.log_prob,
            offset=offset,
            is_special=pieces.is_special(event.token_id),
            top_tokens=_name(pieces, event.top_tokens, previous),
            finish_reason=reason,
        )


def score_prompt(pieces: TokenPieces, prompt: Sequence[PromptToken]) -> tuple[ScoredToken, ...]:
    """The prompt's tokens with their texts, each where it begins in the prompt's text."""
    detokenizer = Detokenizer(pieces)
    num_characters = 0
    scored = []
    for token in prompt:
        previous = detokenizer.previous
        scored.append(
            ScoredToken(
                token_id=token.token_id,
                surface=pieces.surface(token.token_id, previous),
                log_prob=token.log_prob,
                offset=num_characters,
                top_tokens=_name(pieces, token.top_tokens, previous),
            )
        )
        num_characters += len(detokenizer.push(token.token_id))
    return tuple(scored)


def _name(pieces: TokenPieces, ranked: Sequence[tuple[int, float]], previous: int | None) -> tuple[TopToken, ...]:
    return tuple(
        TopToken(token_id, pieces.surface(token_id, previous), log_prob, pieces.is_special(token_id))
        for token_id, log_prob in ranked
    )
