"""Stand-ins at the engine seam: a tokenizer learned on the spot, and an engine that shouts."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Generic, TypeVar, cast

from model.tokenizer import Tokenizer, language_tag, train
from service.engine.core.base import BaseEngine
from service.engine.core.errors import DeadlineError, ModelUnavailableError, OverloadedError
from service.engine.core.line import Request
from service.engine.core.observer import NullObserver, Observer
from service.engine.core.types import EngineStats
from service.engine.decode.backend import Backend
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.types import DecodingRequest, Hypothesis, Result
from service.heads.translate.model import TranslationModel
from service.models.base import LoadedModel
from service.models.registry import ModelLoader, ModelRegistry
from service.settings import Settings

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")

MAX_SOURCE_TOKENS, MAX_NEW_TOKENS = 64, 128
SENTENCES = (
    "Good morning, my friend.",
    "Guten Morgen, mein Freund.",
    "The house is old; where is the key?",
    "a b c d e",
)


@functools.cache
def tiny_tokenizer() -> Tokenizer:
    return train(SENTENCES, vocab_size=400, extra_tokens=[language_tag(code) for code in ("en", "de", "fr")])


class StandIn(ABC, Generic[RequestT, ResultT]):
    """An engine's manners without its work. What `real`, which is never started, would refuse is refused.

    `hold` makes it wait until `release`; `max_waiting` is its queue; the rest counts what was done to it.
    """

    def __init__(self, real: BaseEngine[RequestT, ResultT], observer: Observer | None = None) -> None:
        self._real = real
        self._observer = observer or NullObserver()
        self.max_waiting = 10_000
        self.seconds_per_token = 0.0
        self.failure: Exception | None = None
        self.requests: list[RequestT] = []
        self.num_running = 0
        self.num_cancelled = 0
        self.most_running = 0
        self.steps = 0
        self.calls: list[str] = []
        self.stepping = True
        self._released = threading.Event()
        self._released.set()

    def hold(self) -> None:
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    async def run(self, requests: Sequence[RequestT]) -> list[ResultT]:
        if self.failure is not None:
            raise self.failure
        for request in requests:
            self._real.submit(request).cancel()
        if self.num_running + len(requests) > self.max_waiting:
            raise OverloadedError("the queue is full", retry_after_seconds=2.5)
        self.requests += requests
        self.num_running += len(requests)
        self.most_running = max(self.most_running, self.num_running)
        started = time.monotonic()
        try:
            while not self._released.is_set():
                if any(request.deadline and request.deadline < time.monotonic() for request in requests):
                    raise DeadlineError("too late")
                self.steps += self.stepping
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.num_cancelled += len(requests)
            raise
        finally:
            self.num_running -= len(requests)
        return [self._result(request, time.monotonic() - started) for request in requests]

    def estimate_seconds(self, requests: Sequence[RequestT]) -> float:
        return self.seconds_per_token * sum(len(getattr(request, "source_ids", None) or ()) for request in requests)

    @abstractmethod
    def _result(self, request: RequestT, seconds: float) -> ResultT: ...

    def stats(self) -> EngineStats:
        return EngineStats(self.num_running, 0, self.num_running, 64, self.steps, 0, 0.25, "close" not in self.calls)

    def start(self) -> None:
        self.calls.append("start")

    def drain(self, timeout_seconds: float) -> bool:
        self.calls.append("drain")
        deadline = time.monotonic() + timeout_seconds
        while self.num_running and time.monotonic() < deadline:
            time.sleep(0.005)
        return not self.num_running

    def close(self) -> None:
        self.calls.append("close")


def decoding_engine(vocab_size: int, max_source_tokens: int, max_total_tokens: int) -> DecodingEngine:
    """An engine that can be asked what it would take, and nothing else: there is no model behind it."""
    backend = SimpleNamespace(
        eos_ids=(2,),
        pad_id=0,
        vocab_size=vocab_size,
        num_candidates=16,
        max_total_tokens=max_total_tokens,
        max_source_tokens=max_source_tokens,
        suppressed_ids=(),
        bytes_per_position=1,
        bytes_per_source_token=1,
    )
    return DecodingEngine(cast(Backend, backend))


class FakeEngine(StandIn[DecodingRequest, Result]):
    """Translates by writing in capitals; hypothesis k > 0 gets k exclamation marks."""

    def __init__(self, tokenizer: Tokenizer, observer: Observer | None = None) -> None:
        super().__init__(decoding_engine(tokenizer.vocab_size, MAX_SOURCE_TOKENS, MAX_NEW_TOKENS), observer)
        self._tokenizer = tokenizer
        self.translate: Callable[[str], str] = str.upper

    def texts(self) -> list[str]:
        """The source texts of all requests, in order."""
        return [self._tokenizer.decode(request.source_ids or ()) for request in self.requests]

    def _result(self, request: DecodingRequest, seconds: float) -> Result:
        text = self.translate(self._tokenizer.decode(request.source_ids or ()))
        ranked = [
            Hypothesis(tuple(self._tokenizer.encode(text + "!" * rank)), -float(rank), True)
            for rank in range(request.options.num_hypotheses)
        ]
        self.steps += 1
        self._observer.on_queue(0.002)
        self._observer.on_encode(1, request.num_tokens, 1)
        self._observer.on_step(len(ranked), len(ranked), 0)
        return Result(tuple(ranked), 0.002, seconds, request.num_tokens)


def dead_engine_error() -> ModelUnavailableError:
    return ModelUnavailableError("the loop died")


def fake_model(
    engine: FakeEngine, *, name: str = "en-de", directions: Sequence[tuple[str, str]] = (("en", "de"), ("de", "en"))
) -> TranslationModel:
    return TranslationModel(
        name=name,
        languages=tuple(sorted({code for pair in directions for code in pair})),
        directions=frozenset(directions),
        tokenizer=tiny_tokenizer(),
        target_tokenizer=tiny_tokenizer(),
        engine=engine,
        precision="fp32",
        device="cpu",
        max_source_tokens=MAX_SOURCE_TOKENS,
        max_new_tokens=MAX_NEW_TOKENS,
        max_beam_size=8,
        default_beam_size=2,
        default_length_penalty=1.0,
        info={"sha": "0" * 64},
    )


def loader_of(*models: LoadedModel) -> ModelLoader:
    def load(settings: Settings, observer: Callable[[str], Observer]) -> ModelRegistry:
        return ModelRegistry(models)

    return load
