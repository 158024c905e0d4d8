"""Stand-ins for generation: tokenizers of both kinds, and an engine that says what it is told to say."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from model.tokenizer import BOS, EOS, Tokenizer, train
from service.engine.core.errors import OverloadedError
from service.engine.core.types import EngineStats
from service.engine.decode.types import DecodingRequest, FinishReason, Hypothesis, PromptToken, Result, TokenEvent
from service.heads.generate.model import GenerationModel
from tests.service.fakes import SENTENCES, decoding_engine

TURN, END_OF_TURN = "<|turn|>", "<|end|>"
MAX_TOTAL_TOKENS = 64
SAID = " one two three"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' and loop.first %}"
    "{{ raise_exception('somebody must speak first') }}{% endif %}"
    "<|turn|>{{ message.role }}\n{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


@functools.cache
def fallback_tokenizer() -> Tokenizer:
    """Spells rare characters in bytes, and begins each text with <s>."""
    plain = train((*SENTENCES, "one two three"), vocab_size=420, extra_tokens=[TURN, END_OF_TURN])
    backend = tokenizers.Tokenizer.from_str(plain._backend.to_str())
    backend.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, plain.token_id(BOS))])
    return Tokenizer(backend)


@functools.cache
def byte_level_tokenizer() -> Tokenizer:
    """Spells everything in bytes, as GPT-2 does."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([*SENTENCES, "Grüße, 你好, 😀😀"] * 2, trainer)
    return Tokenizer(backend)


def says(text: str) -> list[int]:
    """The tokens of `text` in the midst of another."""
    tokenizer = fallback_tokenizer()
    return tokenizer.encode(text.removeprefix(" "))


def scored(ids: Sequence[int]) -> tuple[PromptToken, ...]:
    """What the stand-in thinks of a prompt."""
    rest = (PromptToken(token_id, -0.25, ((token_id, -0.25), (5, -2.0))) for token_id in ids[1:])
    return (PromptToken(ids[0], None, ()), *rest)


@dataclass
class ScriptedStream:
    """One stream of a `ScriptedEngine`."""

    engine: ScriptedEngine
    request: DecodingRequest
    ids: list[int]
    queue_seconds: float | None = None
    prompt_log_probs: tuple[PromptToken, ...] | None = None
    num_read: int = 0
    is_closed: bool = False
    is_finished: bool = False

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> TokenEvent:
        engine, request = self.engine, self.request
        if self.is_closed or self.is_finished:
            raise StopAsyncIteration
        if self.num_read >= engine.num_free:
            await engine.wait_for_release()
        if engine.failure is not None and self.num_read >= engine.fails_after:
            raise engine.failure
        self.queue_seconds = 0.004
        self.prompt_log_probs = scored(request.prompt_ids) if request.wants_prompt_log_probs else None
        if request.options.max_new_tokens == 0:
            raise StopAsyncIteration
        token_id = self.ids[self.num_read]
        self.num_read += 1
        engine.num_steps += 1
        reason: FinishReason | None = None
        if token_id == engine.eos_id and not request.ignore_eos:
            reason = "eos_token"
        elif self.num_read == min(request.options.max_new_tokens, len(self.ids)):
            reason = "length"
        self.is_finished = reason is not None
        log_prob = engine.log_prob(request, self.num_read)
        top_tokens = ((token_id, log_prob), (7, log_prob - 1), (8, log_prob - 2))[: request.top_n_tokens]
        return TokenEvent(token_id, log_prob, top_tokens, reason)

    async def aclose(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.engine.num_running -= 1


@dataclass
class ScriptedEngine:
    """Continues each prompt with what `script` says, and an end token; what the engine would refuse is refused.

    After `num_free` tokens a stream waits for `release`. `fails_after` so many it raises `failure`. At most
    `max_running` streams are taken.
    """

    script: Callable[[DecodingRequest], Sequence[int]] = lambda request: says(SAID)
    log_prob: Callable[[DecodingRequest, int], float] = lambda request, number: -0.5 * number
    num_free: int = 10**6
    max_running: int = 10**6
    failure: Exception | None = None
    fails_after: int = 0
    eos_id: int = field(default_factory=lambda: fallback_tokenizer().token_id(EOS))
    requests: list[DecodingRequest] = field(default_factory=list)
    num_running: int = 0
    num_steps: int = 0
    is_released: bool = False
    is_closed: bool = False
    _waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = field(default_factory=list)

    def release(self) -> None:
        """Let all streams go on; from any thread."""
        self.is_released = True
        for loop, event in self._waiting:
            loop.call_soon_threadsafe(event.set)

    async def wait_for_release(self) -> None:
        event = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), event))
        if not self.is_released:
            await event.wait()

    def __post_init__(self) -> None:
        self._real = decoding_engine(fallback_tokenizer().vocab_size, 0, MAX_TOTAL_TOKENS)

    async def open(self, request: DecodingRequest) -> ScriptedStream:
        self._real.submit(request).cancel()
        if self.num_running >= self.max_running:
            raise OverloadedError("the queue is full", retry_after_seconds=2.5)
        self.requests.append(request)
        self.num_running += 1
        return ScriptedStream(self, request, [*self.script(request), self.eos_id])

    async def run(self, requests: Sequence[DecodingRequest]) -> list[Result]:
        """A search of each."""
        return [self._search(request) for request in requests]

    def _search(self, request: DecodingRequest) -> Result:
        self._real.submit(request).cancel()
        self.requests.append(request)
        ids, count = tuple(self.script(request)), request.options.num_hypotheses
        found = [Hypothesis(ids[: len(ids) - rank], -1.0 - rank, rank == 0) for rank in range(count)]
        return Result(tuple(found), 0.004, 0.01, request.num_tokens)

    def stats(self) -> EngineStats:
        return EngineStats(0, 0, self.num_running, 64, self.num_steps, 0, 0.0, not self.is_closed)

    def start(self) -> None:
        """Nothing runs by itself."""

    def drain(self, timeout_seconds: float) -> bool:
        end = time.monotonic() + timeout_seconds
        while self.num_running and time.monotonic() < end:
            time.sleep(0.002)
        return not self.num_running

    def close(self) -> None:
        self.is_closed = True


def fake_generator(
    engine: ScriptedEngine, *, name: str = "story", chat_template: str | None = TEMPLATE
) -> GenerationModel:
    return GenerationModel(
        name=name,
        tokenizer=fallback_tokenizer(),
        engine=engine,
        precision="fp32",
        device="cpu",
        info={"sha": "2" * 64},
        max_total_tokens=MAX_TOTAL_TOKENS,
        eos_ids=(engine.eos_id,),
        max_beam_size=4,
        max_top_tokens=16,
        chat_template=chat_template,
        special_tokens={"bos_token": BOS, "eos_token": EOS},
    )
