"""Continuations of prompts: admits them, reads them to their ends or hands them on as they grow, and ranks them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, TypeVar

from service.engine.types import GenerationResult, Hypothesis
from service.generation.chat import ChatTemplate
from service.generation.detokenizer import Detokenizer
from service.generation.pieces import TokenPieces
from service.generation.prompts import encode_prompts
from service.generation.stops import StopMatcher
from service.generation.tasks import GenerationTask, Prompt
from service.generation.text_stream import Continuation, FinishReason, TextStream, TextToken
from service.inputs import Input
from service.models import GenerationModel, ModelRegistry
from service.records import RequestRecord
from service.tokenization import TokenizationPool, count_characters

T = TypeVar("T")


class TextGenerator:
    """Continues texts with the models of a registry. Raises StartupError for a chat template that is none."""

    def __init__(self, registry: ModelRegistry, pool: TokenizationPool) -> None:
        models = registry.of_kind(GenerationModel)
        self._pool = pool
        self._pieces = {model.name: TokenPieces(model.tokenizer) for model in models}
        self._templates = {
            model.name: ChatTemplate(model.chat_template, model) for model in models if model.chat_template is not None
        }

    def pieces(self, model: GenerationModel) -> TokenPieces:
        """The bytes of the model's tokens."""
        return self._pieces[model.name]

    def template(self, model: GenerationModel) -> ChatTemplate | None:
        """The model's chat template, where it has one."""
        return self._templates.get(model.name)

    async def encode(
        self, model: GenerationModel, inputs: Sequence[Input], *, parameter: str, truncate: int | None = None
    ) -> list[Prompt]:
        """The prompts for `inputs`; see `encode_prompts`."""
        return await self._pool.run(
            count_characters(inputs), lambda: encode_prompts(model, inputs, parameter=parameter, truncate=truncate)
        )

    async def open(
        self, model: GenerationModel, tasks: Sequence[GenerationTask], record: RequestRecord
    ) -> list[list[TextStream]]:
        """The streams of each task's candidates, all admitted or none; the caller closes them.

        Raises OverloadedError, RequestTooLargeError or ModelUnavailableError.
        """
        opened: list[list[TextStream]] = []
        try:
            for task in tasks:
                record.num_input_tokens += len(task.prompt.token_ids)
                opened.append([])
                for number in range(task.num_candidates):
                    opened[-1].append(await self._open_one(model, task, number, record))
        except BaseException:
            await close_all([stream for streams in opened for stream in streams])
            raise
        return opened

    async def _open_one(
        self, model: GenerationModel, task: GenerationTask, number: int, record: RequestRecord
    ) -> TextStream:
        stream = await model.engine.open(task.request(number))
        return TextStream(
            stream,
            self.pieces(model),
            task.prompt.token_ids,
            StopMatcher(task.stops, keeps_stop=task.keeps_stop),
            record,
            task.seed(number),
        )

    async def generate(
        self, model: GenerationModel, tasks: Sequence[GenerationTask], record: RequestRecord
    ) -> list[list[Continuation]]:
        """The outputs of each task. Cancelling stops the work in the engine; raises as `open` does, and what the first
        to fail failed with.
        """
        if any(task.beam_size > 1 for task in tasks):
            return await _side_by_side([self._search(model, task, record) for task in tasks])
        opened = await self.open(model, tasks, record)
        streams = [stream for of_task in opened for stream in of_task]
        try:
            found = iter(await _side_by_side([stream.collect() for stream in streams]))
        finally:
            await close_all(streams)
        return [_choose(task, [next(found) for _ in of_task]) for task, of_task in zip(tasks, opened, strict=True)]

    async def _search(self, model: GenerationModel, task: GenerationTask, record: RequestRecord) -> list[Continuation]:
        result: GenerationResult = await model.engine.search(task.request())
        record.add(result)
        return [self._hypothesis(model, task, hypothesis) for hypothesis in result.hypotheses]

    def _hypothesis(self, model: GenerationModel, task: GenerationTask, found: Hypothesis) -> Continuation:
        detokenizer = Detokenizer(self.pieces(model), task.prompt.token_ids)
        stops = StopMatcher(task.stops, keeps_stop=task.keeps_stop)
        text = "".join(detokenizer.push(token_id) for token_id in found.token_ids) + detokenizer.flush()
        text = stops.push(text) + stops.flush()
        reason: FinishReason = "eos_token" if found.finished else "length"
        num_tokens = len(found.token_ids) + found.finished  # the end token is one too
        return Continuation(
            text=text,
            tokens=(),
            num_tokens=num_tokens,
            finish_reason="stop_sequence" if stops.is_found else reason,
            mean_log_prob=found.score / max(1, num_tokens),
        )


def _choose(task: GenerationTask, candidates: list[Continuation]) -> list[Continuation]:
    if task.is_ranked:
        candidates.sort(key=lambda candidate: -candidate.mean_log_prob)
    return candidates[: task.num_outputs]


async def _side_by_side(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order; the first failure cancels the rest."""
    if len(works) == 1:  # the usual case, without the cost of tasks
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def close_all(streams: Sequence[TextStream]) -> None:
    """Close every stream."""
    for stream in streams:
        await stream.aclose()


async def merge(streams: Sequence[TextStream]) -> AsyncGenerator[tuple[int, TextToken]]:
    """The tokens of all streams as they come, each with the number of its stream; closes the streams at the end.

    At most one token of each is taken before the reader asks for it.
    """
    if len(streams) == 1:
        async for only in streams[0]:
            yield 0, only
        return
    reading = {asyncio.ensure_future(_next(stream)): number for number, stream in enumerate(streams)}
    try:
        while reading:
            done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=reading.__getitem__):
                number = reading.pop(task)
                if (token := task.result()) is not None:
                    reading[asyncio.ensure_future(_next(streams[number]))] = number
                    yield number, token
    finally:
        for task in reading:
            task.cancel()
        if reading:
            await asyncio.wait(reading)


async def _next(stream: TextStream) -> TextToken | None:
    return await anext(stream, None)
