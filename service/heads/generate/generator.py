"""Continuations of prompts: admission, collection or streaming, and ranking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from service.engine.decode.types import Hypothesis
from service.heads.generate.chat import ChatTemplate
from service.heads.generate.detokenizer import Detokenizer
from service.heads.generate.model import GenerationModel
from service.heads.generate.pieces import TokenPieces
from service.heads.generate.prompts import encode_prompts
from service.heads.generate.stops import StopMatcher
from service.heads.generate.tasks import GenerationTask, Prompt
from service.heads.generate.text_stream import Continuation, FinishReason, TextStream, TextToken
from service.http.records import RequestRecord
from service.models.tokenization import Input, run_in_turns
from service.workers import WorkerPool, run_together

T = TypeVar("T")


class TextGenerator:
    """Continues texts. Token bytes and templates of a model are cached as long as the model lives."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._pieces: WeakKeyDictionary[GenerationModel, TokenPieces] = WeakKeyDictionary()
        self._templates: WeakKeyDictionary[GenerationModel, ChatTemplate] = WeakKeyDictionary()

    def pieces(self, model: GenerationModel) -> TokenPieces:
        """The bytes of the model's tokens."""
        if (found := self._pieces.get(model)) is None:
            found = self._pieces[model] = TokenPieces(model.tokenizer)
        return found

    def template(self, model: GenerationModel) -> ChatTemplate | None:
        """The model's chat template, where it has one; StartupError for one that is none."""
        if model.chat_template is None:
            return None
        if (found := self._templates.get(model)) is None:
            found = self._templates[model] = ChatTemplate(model.chat_template, model)
        return found

    async def encode(
        self,
        model: GenerationModel,
        inputs: Sequence[Input],
        *,
        parameter: str,
        truncate: int | None = None,
        add_special_tokens: bool = True,
    ) -> list[Prompt]:
        """The prompts for `inputs`; see `encode_prompts`."""
        return await run_in_turns(
            self._pool,
            inputs,
            lambda part: encode_prompts(
                model, part, parameter=parameter, truncate=truncate, add_special_tokens=add_special_tokens
            ),
        )

    async def open(
        self, model: GenerationModel, tasks: Sequence[GenerationTask], record: RequestRecord
    ) -> list[list[TextStream]]:
        """The streams of each task's candidates, all admitted or none; the caller closes them.

        Raises OverloadedError, RequestTooLargeError or ModelUnavailableError.
        """
        _charge(tasks, record)
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
            _charge(tasks, record)
            return await run_together([self._search(model, task, record) for task in tasks])
        opened = await self.open(model, tasks, record)
        streams = [stream for of_task in opened for stream in of_task]
        try:
            found = iter(await run_together([stream.collect() for stream in streams]))
        finally:
            await close_all(streams)
        return [_choose(task, [next(found) for _ in of_task]) for task, of_task in zip(tasks, opened, strict=True)]

    async def _search(self, model: GenerationModel, task: GenerationTask, record: RequestRecord) -> list[Continuation]:
        (result,) = await model.engine.run([task.request()])
        record.add(result, result.hypotheses)
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


def _charge(tasks: Sequence[GenerationTask], record: RequestRecord) -> None:
    record.charge(sum(len(task.prompt.text) for task in tasks))


def _choose(task: GenerationTask, candidates: list[Continuation]) -> list[Continuation]:
    if task.is_ranked:
        candidates.sort(key=lambda candidate: -candidate.mean_log_prob)
    return candidates[: task.num_outputs]


async def close_all(streams: Sequence[TextStream]) -> None:
    """Close every stream."""
    for stream in streams:
        await stream.aclose()


async def merge(streams: Sequence[TextStream]) -> AsyncGenerator[tuple[int, TextToken]]:
    """The tokens of all streams as they are generated, each with the number of its stream.

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
