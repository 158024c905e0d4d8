"""From texts to translated texts: detect the language, choose the model, split, run, join.

Knows no HTTP. Splitting and encoding long texts runs in a thread, so that it does not block the event loop.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from service.engine.core.errors import OverloadedError
from service.engine.decode.types import DecodingRequest, Result
from service.errors import InvalidRequestError, SlowdownError
from service.heads.translate.errors import TooLongToTranslateError
from service.heads.translate.job import SearchOptions, TextJob
from service.heads.translate.languages import AUTO, Languages, choose_translator
from service.heads.translate.model import TranslationModel
from service.heads.translate.text.detect import Detection, Detector
from service.heads.translate.text.markup import Markup
from service.http.records import RequestRecord
from service.models.chunks import OrderedResults, run_in_chunks
from service.models.registry import ModelRegistry
from service.settings import Settings
from service.workers import WorkerPool, run_together

_ENDLESS = 2.0
"""A request that would take so many times what it may is refused at once."""


@dataclass(frozen=True, slots=True)
class TranslationTask:
    """Texts to translate into `target`, a known code; `source` is a known code or "auto".

    `registry` is the snapshot that the request began with. `target_prefixes` has what the translation of each text
    begins with, or nothing at all. `deadline` is on `time.monotonic()`'s clock. What is `accepted` waits for room in
    the engine where another task would be refused.
    """

    registry: ModelRegistry
    texts: Sequence[str]
    source: str
    target: str
    markup: Markup = field(default_factory=Markup)
    search: SearchOptions = field(default_factory=SearchOptions)
    target_prefixes: Sequence[str] = ()
    model_name: str | None = None
    deadline: float | None = None
    accepted: bool = False

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts))


@dataclass(frozen=True, slots=True)
class Translation:
    """One translated text. `alternatives` differ from it and from each other; `detected` only for source "auto"."""

    text: str
    alternatives: tuple[str, ...] = ()
    detected: Detection | None = None


class TranslationStream:
    """The translation of one text as it is finished: an asynchronous iterator over its sentences, in their order.

    Each comes with the text before it, and the last with that after it: joined, they are the translated text. A text
    that is in the target language already comes back at once. Reading raises what the engine raises;
    `aclose` stops the work.
    """

    def __init__(
        self,
        text: str,
        detected: Detection | None,
        sentences: AsyncGenerator[str] | None = None,
        results: OrderedResults[DecodingRequest, Result] | None = None,
    ) -> None:
        self.detected = detected
        self._sentences = _only(text) if sentences is None else sentences
        self._results = results
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """All sentences so far."""
        return "".join(self._parts)

    def __aiter__(self) -> TranslationStream:
        return self

    async def __anext__(self) -> str:
        part = await anext(self._sentences)
        self._parts.append(part)
        return part

    async def aclose(self) -> None:
        """Cancel what is left; its rows are freed at the engine's next step."""
        await self._sentences.aclose()
        if self._results is not None:
            await self._results.aclose()


async def _only(text: str) -> AsyncGenerator[str]:
    yield text


class Translator:
    """Translates the texts of tasks, and detects languages."""

    def __init__(self, settings: Settings, pool: WorkerPool) -> None:
        self._settings = settings
        self._pool = pool
        self._waiting_limits = {
            "max_waiting_requests": settings.max_waiting_requests,
            "max_waiting_tokens": settings.max_waiting_tokens,
        }

    async def translate(self, task: TranslationTask, record: RequestRecord) -> list[Translation]:
        """Translations in the order of the texts; their time and tokens are added to `record`.

        Raises InvalidRequestError (a pair that no model translates, a detected language that none knows, an option out
        of bounds, a text that would take more than twice its time), SlowdownError, or what the engine raises.
        Cancelling stops the work in the engine.
        """
        num_characters = task.num_characters
        detections = await self._detect_sources(task)
        jobs, firsts = await self._pool.run(num_characters, lambda: self._prepare(task, detections))
        _refuse_endless(jobs, firsts, task.deadline)
        try:
            results = await self._run(jobs, firsts, record, accepted=task.accepted)
        except OverloadedError as error:
            raise SlowdownError(str(error), retry_after_seconds=error.retry_after_seconds) from error
        seconds = await self._pool.run(
            num_characters,
            lambda: [job.retries(found) if job else [] for job, found in zip(jobs, results, strict=True)],
        )
        results = await self._run(jobs, seconds, record, accepted=True)
        texts = await self._pool.run(
            num_characters,
            lambda: [
                job.texts(found) if job else [text] for text, job, found in zip(task.texts, jobs, results, strict=True)
            ],
        )
        return [
            Translation(found[0], tuple(found[1:]), detected) for found, detected in zip(texts, detections, strict=True)
        ]

    async def open(self, task: TranslationTask, record: RequestRecord) -> TranslationStream:
        """The sentences of the one text of `task`, translated, as they are finished; the caller closes the stream.

        Raises what `translate` raises before the engine has begun.
        """
        (text,) = task.texts
        (detected,) = await self._detect_sources(task)
        (job,), (requests,) = await self._pool.run(len(text), lambda: self._prepare(task, [detected]))
        if job is None:
            return TranslationStream(text, detected)
        _refuse_endless([job], [requests], task.deadline)
        sentences = await self._pool.run(len(text), job.sentences)
        results = OrderedResults(job.model.engine, requests, **self._waiting_limits)
        try:
            await results.open()
        except OverloadedError as error:
            raise SlowdownError(str(error), retry_after_seconds=error.retry_after_seconds) from error

        async def translated() -> AsyncGenerator[str]:
            for sentence in sentences:
                found = [await anext(results)] if requests else []
                for result in found:
                    record.add(result, result.hypotheses)
                (again,) = await self._run([sentence], [sentence.retries(found)], record, accepted=True)
                yield sentence.texts(again)[0]

        return TranslationStream(text, detected, translated(), results)

    async def detect(self, text: str, registry: ModelRegistry) -> list[Detection]:
        """The languages that `text` may be in, best first; one with confidence 0 where none is detected."""
        detector = registry.view(make_detector)
        detections = await self._pool.run(len(text), lambda: detector.detect(text))
        return detections or [_nothing_detected(registry)]

    async def detect_source(self, text: str, registry: ModelRegistry) -> str:
        """The language of `text`, which some model must know; UnsupportedLanguageError names one that none does."""
        return (await self._detect_best(text, registry)).language

    async def _detect_sources(self, task: TranslationTask) -> list[Detection | None]:
        if task.source != AUTO:
            return [None] * len(task.texts)
        return [await self._detect_best(text, task.registry) for text in task.texts]

    async def _detect_best(self, text: str, registry: ModelRegistry) -> Detection:
        best = (await self.detect(text, registry))[0]
        return best._replace(language=registry.view(Languages).code(best.language, parameter="source"))

    def _prepare(
        self, task: TranslationTask, detections: Sequence[Detection | None]
    ) -> tuple[list[TextJob | None], list[list[DecodingRequest]]]:
        """A job for each text, None for a text that is in the target language already, and the jobs' requests."""
        jobs: list[TextJob | None] = []
        prefixes = task.target_prefixes or [""] * len(task.texts)
        for text, prefix, detected in zip(task.texts, prefixes, detections, strict=True):
            source = detected.language if detected else task.source
            model = _choose_model(source, task)
            if model is None:
                _refuse_prefix(prefix, source)
                jobs.append(None)
                continue
            job = TextJob(
                text,
                source=source,
                target=task.target,
                markup=task.markup,
                model=model,
                search=task.search,
                deadline=task.deadline,
                settings=self._settings,
                target_prefix=prefix,
            )
            jobs.append(job)
        return jobs, [job.requests() if job else [] for job in jobs]

    async def _run(
        self,
        jobs: Sequence[TextJob | None],
        requests: Sequence[Sequence[DecodingRequest]],
        record: RequestRecord,
        *,
        accepted: bool,
    ) -> list[list[Result]]:
        """The results of each job. The sentences of all texts for one model are submitted together."""
        by_model: dict[str, tuple[TranslationModel, list[int]]] = {}
        for number, job in enumerate(jobs):
            if job is not None and requests[number]:
                by_model.setdefault(job.model.name, (job.model, []))[1].append(number)
        results: list[list[Result]] = [[] for _ in jobs]

        async def run(model: TranslationModel, numbers: list[int]) -> None:
            flat = await run_in_chunks(
                model.engine,
                [request for number in numbers for request in requests[number]],
                **self._waiting_limits,
                accepted=accepted,
            )
            for result in flat:
                record.add(result, result.hypotheses)
            remaining = iter(flat)
            for number in numbers:
                results[number] = [next(remaining) for _ in requests[number]]

        await run_together([run(model, numbers) for model, numbers in by_model.values()])
        return results


def make_detector(registry: ModelRegistry) -> Detector:
    """A detector that prefers the languages of the models; take it as `registry.view(make_detector)`."""
    return Detector(registry.view(Languages).codes)


def _nothing_detected(registry: ModelRegistry) -> Detection:
    """English, as LibreTranslate answers; where no model reads English, the first language that one reads."""
    codes = registry.view(Languages).codes
    return Detection("en" if "en" in codes or not codes else min(codes), 0.0)


def _refuse_endless(
    jobs: Sequence[TextJob | None], requests: Sequence[Sequence[DecodingRequest]], deadline: float | None
) -> None:
    """TooLongToTranslateError where even the models' own time, each alone, would be more than twice what there is."""
    if deadline is None:
        return
    by_model: dict[str, tuple[TranslationModel, list[DecodingRequest]]] = {}
    for job, of_job in zip(jobs, requests, strict=True):
        if job is not None:
            by_model.setdefault(job.model.name, (job.model, []))[1].extend(of_job)
    allowed = deadline - time.monotonic()
    for model, of_model in by_model.values():
        estimate = model.engine.estimate_seconds(of_model)
        if estimate > _ENDLESS * max(0.0, allowed):
            raise TooLongToTranslateError(estimate, allowed)


def _refuse_prefix(prefix: str, source: str) -> None:
    if prefix:
        raise InvalidRequestError(
            f"Invalid request: target_prefix parameter: the text is in the target language ({source}) already",
            parameter="target_prefix",
        )


def _choose_model(source: str, task: TranslationTask) -> TranslationModel | None:
    if source != task.target:
        return choose_translator(task.registry, source, task.target, task.model_name)
    # An unknown name is an error also where there is nothing to translate.
    task.registry.candidates(TranslationModel, task.model_name)
    return None
