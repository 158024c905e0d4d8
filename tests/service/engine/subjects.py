"""The engines that share one contract, each with a stand-in for its model and requests whose results are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from service.engine.core.base import BaseEngine
from service.engine.core.line import LineLimits
from service.engine.core.observer import Observer
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.types import DecodingRequest
from service.engine.encode.attention import AttentionRequest
from service.engine.encode.attention_engine import AttentionEngine
from service.engine.encode.embedding import EmbeddingRequest
from service.engine.encode.embedding_engine import EmbeddingEngine
from service.engine.encode.embedding_line import EmbeddingLimits
from tests.service.engine.decode.toy import BOS, ToyBackend, events_of, hypotheses_of, request_of
from tests.service.engine.gate import Gate
from tests.service.engine.toy_attention import ToyAttention, values_of
from tests.service.engine.toy_encoder import ToyEncoder, vectors


class Subject(ABC):
    """One engine: how it is made, asked, and what it must answer."""

    name: ClassVar[str]
    takes_loops: ClassVar[bool] = True
    """Whether the engine can have several."""

    @abstractmethod
    def backend(self) -> Gate:
        """A new stand-in for the model."""

    @abstractmethod
    def engine(
        self, backend: Any, num_loops: int = 1, observer: Observer | None = None, **limits: int
    ) -> BaseEngine[Any, Any]:
        """A new engine, not started."""

    @abstractmethod
    def request(self, number: int, deadline: float | None = None) -> Any:
        """One of many requests, all of one size; while one runs on the only loop, the others wait."""

    async def ask(self, engine: Any, request: Any) -> Any:
        """What the engine answers, comparable with `expected`."""
        (result,) = await engine.run([request])
        assert result.num_input_tokens == request.num_tokens
        assert result.queue_seconds >= 0
        assert result.inference_seconds >= 0
        return self.answer(result)

    @abstractmethod
    def answer(self, result: Any) -> Any:
        """What a whole result says."""

    @abstractmethod
    def expected(self, request: Any) -> Any:
        """What a whole result must say."""


class Translation(Subject):
    """Decoding from a source, as whole results."""

    name = "translation"

    def backend(self) -> ToyBackend:
        return ToyBackend(max_source_tokens=20)

    def engine(
        self, backend: Any, num_loops: int = 1, observer: Observer | None = None, **limits: int
    ) -> BaseEngine[Any, Any]:
        return DecodingEngine(
            backend, DecodingLimits(**{"max_rows": 1} | limits), num_loops, observer, capacities=(16, 32)
        )

    def request(self, number: int, deadline: float | None = None) -> DecodingRequest:
        source = (3 + number % 20, 3 + number // 20, 5)
        return request_of((BOS,), source, max_new_tokens=6, ignore_eos=True, deadline=deadline)

    def answer(self, result: Any) -> Any:
        return result.best.token_ids

    def expected(self, request: DecodingRequest) -> Any:
        return hypotheses_of(request)[0].token_ids


class Generation(Translation):
    """Decoding of prompts, as streams."""

    name = "generation"

    def backend(self) -> ToyBackend:
        return ToyBackend()

    def request(self, number: int, deadline: float | None = None) -> DecodingRequest:
        prompt = (3 + number % 20, 3 + number // 20, 5)
        return request_of(prompt, max_new_tokens=6, ignore_eos=True, deadline=deadline)

    async def ask(self, engine: Any, request: Any) -> Any:
        stream = await engine.open(request)
        try:
            events = [event async for event in stream]
        finally:
            await stream.aclose()
        assert events == events_of(request)
        return tuple(event.token_id for event in events)


class Embedding(Subject):
    name = "embedding"

    def backend(self) -> ToyEncoder:
        return ToyEncoder()

    def engine(
        self, backend: Any, num_loops: int = 1, observer: Observer | None = None, **limits: int
    ) -> BaseEngine[Any, Any]:
        return EmbeddingEngine(backend, EmbeddingLimits(**limits), num_loops, observer)

    def request(self, number: int, deadline: float | None = None) -> EmbeddingRequest:
        return EmbeddingRequest((1 + number, 5, 6), deadline=deadline)

    def answer(self, result: Any) -> Any:
        return result.values.tolist()

    def expected(self, request: EmbeddingRequest) -> Any:
        return vectors(request).tolist()


class Attention(Subject):
    name = "attention"
    takes_loops = False

    def backend(self) -> ToyAttention:
        return ToyAttention()

    def engine(
        self, backend: Any, num_loops: int = 1, observer: Observer | None = None, **limits: int
    ) -> BaseEngine[Any, Any]:
        assert num_loops == 1
        return AttentionEngine(backend, LineLimits(**limits), observer)

    def request(self, number: int, deadline: float | None = None) -> AttentionRequest:
        return AttentionRequest((1 + number % 40, number // 40), (5,), deadline=deadline)

    def answer(self, result: Any) -> Any:
        return result.maps["encoder"][0].tolist()

    def expected(self, request: AttentionRequest) -> Any:
        return values_of(request)


SUBJECTS: tuple[Subject, ...] = (Translation(), Generation(), Embedding(), Attention())
