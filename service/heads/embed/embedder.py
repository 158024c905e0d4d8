"""From inputs to vectors: choose the model, tokenize, run, cut and normalise. Knows no HTTP."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from service.errors import InputError, ModelOutputError, check_num_values
from service.heads.embed.model import EmbeddingModel
from service.http.records import RequestRecord
from service.models.chunks import run_in_chunks
from service.models.tokenization import Input, Truncation, count_characters, encode_inputs, run_in_turns
from service.settings import Settings
from service.workers import WorkerPool

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddingTask:
    """Inputs to embed, with one vector each or, with `wants_tokens`, one for each token.

    `model` is one of the snapshot that the request began with. `parameter` is the protocol's name for the
    inputs, for messages. `deadline` is on `time.monotonic()`'s clock.
    """

    model: EmbeddingModel
    inputs: Sequence[Input]
    truncation: Truncation
    parameter: str
    prompt_name: str | None = None
    wants_tokens: bool = False
    normalize: bool = True
    dimensions: int | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The vectors of a task, in the order of its inputs, and the time and tokens they took.

    `vectors` holds (E,) for each input, or (S, E) where the task wants tokens; E is the task's `dimensions` or the
    model's. `num_truncated` inputs were longer than the model reads.
    """

    model: EmbeddingModel
    vectors: list[Vectors]
    num_characters: int
    num_tokens: int
    num_truncated: int
    tokenization_seconds: float
    queue_seconds: float
    inference_seconds: float


class Embedder:
    """Computes the vectors that tasks ask for."""

    def __init__(self, pool: WorkerPool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings

    async def embed(self, task: EmbeddingTask, record: RequestRecord) -> Embeddings:
        """The vectors of all inputs; their time and tokens are added to `record`.

        Raises InputError for what the model cannot take, ModelOutputError, or what the engine raises. Cancelling stops
        the work in the engine.
        """
        model = task.model
        _check_dimensions(task.dimensions, model)
        prompt = model.prompt(task.prompt_name)
        num_characters = count_characters(task.inputs)
        record.charge(num_characters)
        started = time.monotonic()
        encoded = await run_in_turns(
            self._pool,
            task.inputs,
            lambda inputs: encode_inputs(
                model.tokenizer,
                inputs,
                max_tokens=model.max_input_tokens,
                prompt=prompt,
                truncation=task.truncation,
                parameter=task.parameter,
            ),
        )
        tokenized = time.monotonic()
        num_tokens = sum(len(each.ids) for each in encoded)
        if task.wants_tokens:
            check_num_values(num_tokens * model.dimensions, self._settings.max_answer_values, parameter=task.parameter)
        results = await self._run(
            model,
            [EmbeddingRequest(each.ids, wants_tokens=task.wants_tokens, deadline=task.deadline) for each in encoded],
        )
        for result in results:
            record.add(result)
        return Embeddings(
            model=model,
            vectors=_token_vectors(results) if task.wants_tokens else _pooled_vectors(results, task),
            num_characters=num_characters,
            num_tokens=num_tokens,
            num_truncated=sum(each.is_cut for each in encoded),
            tokenization_seconds=tokenized - started,
            queue_seconds=record.queue_seconds,
            inference_seconds=record.inference_seconds,
        )

    async def _run(self, model: EmbeddingModel, requests: list[EmbeddingRequest]) -> list[EmbeddingResult]:
        """At once, all or none; in chunks where there are more than the line should take from one client."""
        settings = self._settings
        if len(requests) <= settings.max_client_batch_size:
            return await model.engine.run(requests)
        return await run_in_chunks(
            model.engine,
            requests,
            max_waiting_requests=settings.max_waiting_requests,
            max_waiting_tokens=settings.max_waiting_tokens,
        )


def _check_dimensions(dimensions: int | None, model: EmbeddingModel) -> None:
    if dimensions is not None and not 1 <= dimensions <= model.dimensions:
        raise InputError(
            f"Input validation error: `dimensions` must be between 1 and {model.dimensions}. Given: {dimensions}",
            parameter="dimensions",
        )


def _pooled_vectors(results: Sequence[EmbeddingResult], task: EmbeddingTask) -> list[Vectors]:
    """Cut first, then normalised, so that a cut vector has length 1 too."""
    vectors = np.stack([result.values[: task.dimensions] for result in results])
    if task.normalize:
        return list(normalized(vectors))
    _check_finite(vectors)
    return list(vectors)


def _token_vectors(results: Sequence[EmbeddingResult]) -> list[Vectors]:
    for result in results:
        _check_finite(result.values)
    return [result.values for result in results]


def normalized(vectors: Vectors) -> Vectors:
    """`vectors` (B, E), each divided by its length; one of length 0 stays as it is.

    Raises ModelOutputError where a number is not finite, because then the length is not either.
    """
    exact = vectors.astype(np.float64)  # in float32 the squares of large numbers overflow
    lengths = np.sqrt(np.einsum("be,be->b", exact, exact))
    _check_finite(lengths)
    lengths[lengths == 0] = 1
    unit: Vectors = (exact / lengths[:, None]).astype(np.float32)
    return unit


def _check_finite(numbers: NDArray[np.floating[Any]]) -> None:
    if not np.isfinite(numbers).all():
        raise ModelOutputError("the model computed numbers that are not finite, which no vector has")
