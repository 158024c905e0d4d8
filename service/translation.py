"""From texts to translated texts: detect the language, choose the model, split, run, join.

Knows no HTTP. What takes long on the CPU (splitting and encoding big texts) runs in a thread, so that the event loop
goes on serving others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from service.decoding import SearchOptions, TextFormat, TextJob
from service.dispatch import run_in_chunks
from service.engine.errors import OverloadedError
from service.engine.types import GenerationResult, InferenceRequest
from service.errors import SlowdownError
from service.models import AUTO, ModelRegistry, TranslationModel
from service.records import RequestRecord
from service.settings import Settings
from service.text.detect import Detection, Detector

T = TypeVar("T")

_INLINE_CHARACTERS = 2_000  # below this, handing over to a thread costs more than the work


@dataclass(frozen=True, slots=True)
class TranslationTask:
    """Texts to translate into `target`, a known code; `source` is a known code or "auto".

    `deadline` is on `time.monotonic()`'s clock.
    """

    texts: Sequence[str]
    source: str
    target: str
    format: TextFormat = "text"
    search: SearchOptions = field(default_factory=SearchOptions)
    model_name: str | None = None
    deadline: float | None = None

    @property
    def is_long(self) -> bool:
        return sum(map(len, self.texts)) > _INLINE_CHARACTERS


@dataclass(frozen=True, slots=True)
class Translation:
    """One translated text. `alternatives` differ from it and from each other; `detected` only for source "auto"."""

    text: str
    alternatives: tuple[str, ...] = ()
    detected: Detection | None = None


class Translator:
    """Translates with the models of a registry."""

    def __init__(self, registry: ModelRegistry, settings: Settings, detector: Detector) -> None:
        self._registry = registry
        self._settings = settings
        self._detector = detector

    async def translate(self, task: TranslationTask, record: RequestRecord) -> list[Translation]:
        """Translations in the order of the texts; what they cost is added to `record`.

        Raises InvalidRequestError (a pair that no model translates, a detected language that none knows, an option out
        of bounds), SlowdownError, or what the engine raises. Cancelling stops the work in the engine.
        """
        detections = await self._detect_sources(task)
        jobs, firsts = await _compute(task.is_long, lambda: self._prepare(task, detections))
        try:
            results = await self._run(jobs, firsts, record, accepted=False)
        except OverloadedError as error:
            raise SlowdownError(str(error), retry_after_seconds=error.retry_after_seconds) from error
        seconds = await _compute(
            task.is_long, lambda: [job.retries(found) if job else [] for job, found in zip(jobs, results, strict=True)]
        )
        results = await self._run(jobs, seconds, record, accepted=True)
        texts = await _compute(
            task.is_long,
            lambda: [
                job.texts(found) if job else [text] for text, job, found in zip(task.texts, jobs, results, strict=True)
            ],
        )
        return [
            Translation(found[0], tuple(found[1:]), detected) for found, detected in zip(texts, detections, strict=True)
        ]

    async def detect(self, text: str) -> list[Detection]:
        """The languages that `text` may be in, best first; one with confidence 0 when there is nothing to go by."""
        detections = await _compute(len(text) > _INLINE_CHARACTERS, lambda: self._detector.detect(text))
        return detections or [self._nothing_detected()]

    async def detect_source(self, text: str) -> str:
        """The language of `text`, which some model must know; UnsupportedLanguageError names one that none does."""
        return (await self._detect_best(text)).language

    async def _detect_sources(self, task: TranslationTask) -> list[Detection | None]:
        if task.source != AUTO:
            return [None] * len(task.texts)
        return [await self._detect_best(text) for text in task.texts]

    async def _detect_best(self, text: str) -> Detection:
        best = (await self.detect(text))[0]
        return best._replace(language=self._registry.language(best.language, parameter="source"))

    def _nothing_detected(self) -> Detection:
        """English, as LibreTranslate answers; where no model reads English, the first language that one reads."""
        codes = {language.code for language in self._registry.languages}
        return Detection("en" if "en" in codes or not codes else min(codes), 0.0)

    def _prepare(
        self, task: TranslationTask, detections: Sequence[Detection | None]
    ) -> tuple[list[TextJob | None], list[list[InferenceRequest]]]:
        """A job for each text, None for a text that is in the target language already, and the jobs' requests."""
        jobs: list[TextJob | None] = []
        for text, detected in zip(task.texts, detections, strict=True):
            source = detected.language if detected else task.source
            model = self._choose(source, task)
            if model is None:
                jobs.append(None)
                continue
            job = TextJob(
                text,
                source=source,
                target=task.target,
                text_format=task.format,
                model=model,
                search=task.search,
                deadline=task.deadline,
                settings=self._settings,
            )
            jobs.append(job)
        return jobs, [job.requests() if job else [] for job in jobs]

    def _choose(self, source: str, task: TranslationTask) -> TranslationModel | None:
        if source != task.target:
            return self._registry.translator(source, task.target, task.model_name)
        if task.model_name is not None:
            self._registry.by_name(task.model_name)  # a misspelt name is an error also where nothing has to be done
        return None

    async def _run(
        self,
        jobs: Sequence[TextJob | None],
        requests: Sequence[Sequence[InferenceRequest]],
        record: RequestRecord,
        *,
        accepted: bool,
    ) -> list[list[GenerationResult]]:
        """The results of each job. All the sentences for one model go in together, whichever text they are from."""
        by_model: dict[str, tuple[TranslationModel, list[int]]] = {}
        for number, job in enumerate(jobs):
            if job is not None and requests[number]:
                by_model.setdefault(job.model.name, (job.model, []))[1].append(number)
        results: list[list[GenerationResult]] = [[] for _ in jobs]

        async def run(model: TranslationModel, numbers: list[int]) -> None:
            flat = await run_in_chunks(
                model.engine,
                [request for number in numbers for request in requests[number]],
                max_waiting_requests=self._settings.max_waiting_requests,
                max_waiting_tokens=self._settings.max_waiting_tokens,
                accepted=accepted,
            )
            for result in flat:
                record.add(result)
            remaining = iter(flat)
            for number in numbers:
                results[number] = [next(remaining) for _ in requests[number]]

        try:
            async with asyncio.TaskGroup() as group:
                for model, numbers in by_model.values():
                    group.create_task(run(model, numbers))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return results


async def _compute(is_long: bool, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if is_long else work()
