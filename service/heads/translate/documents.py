"""Translation of whole files: each is read and written by a separate process, its sentences are translated here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from service.engine.core.flow import current_flow
from service.errors import SlowdownError
from service.heads.translate.files.pool import FilePool
from service.heads.translate.files.protocol import FileLimits
from service.heads.translate.languages import AUTO
from service.heads.translate.translator import TranslationTask, Translator
from service.http.jobs import Job, JobResult
from service.http.records import RequestRecord
from service.settings import Settings

_WAITING_FILES_PER_PROCESS = 4
_PART_CHARACTERS = 20_000
"""A job is told of its progress after so many: some hundred sentences, enough for full batches."""
_MAX_TEXTS = 100_000
"""Texts of one file: paragraphs, lines of a subtitle, runs between two tags."""


class DocumentTranslator:
    """Translates some files at a time, while some more are queued. For use on one event loop."""

    def __init__(self, translator: Translator, settings: Settings) -> None:
        self._translator = translator
        limits = FileLimits(
            memory_bytes=settings.max_file_memory_bytes,
            cpu_seconds=settings.max_file_cpu_seconds,
            characters=settings.max_file_characters,
            texts=_MAX_TEXTS,
            result_bytes=settings.max_stored_file_bytes,
        )
        self._pool = FilePool(settings.max_concurrent_files, limits)
        self._max_files = settings.max_concurrent_files * (1 + _WAITING_FILES_PER_PROCESS)
        self._num_files: Counter[str] = Counter()  # by client

    def start(self) -> None:
        """Start the processes that read files, in the background."""
        self._pool.start()

    async def translate(
        self, name: str, data: bytes, task: TranslationTask, record: RequestRecord
    ) -> tuple[str, bytes]:
        """The translated file and the name for it. `task` has everything but the texts.

        Raises SlowdownError when too many files wait, InvalidDocumentError, and what `Translator.translate` raises.
        Cancelling stops the sentences in the engine, and kills the process that reads or writes the file.
        """
        client = current_flow().client
        # Twice as many, so that a client who has all that one may have leaves room for others.
        if self._num_files[client] >= self._max_files or self._num_files.total() >= 2 * self._max_files:
            raise SlowdownError("too many files are being translated", retry_after_seconds=5.0)
        self._num_files[client] += 1
        try:
            async with self._pool.open(name, data) as file:
                record.charge(sum(map(len, file.texts)))
                translations = await self._translate(file.texts, task, record) if file.texts else []
                return name, await file.write(translations)
        finally:
            self._num_files[client] -= 1
            if not self._num_files[client]:
                del self._num_files[client]

    async def work(self, name: str, data: bytes, task: TranslationTask, job: Job) -> JobResult:
        """The same as a job, which waits for its turn and reports the characters that are translated."""
        async with self._pool.open(name, data) as file:
            job.begin()
            job.num_total = sum(map(len, file.texts))
            job.record.charge(job.num_total)
            if file.texts and task.source == AUTO:
                task = replace(task, source=await self._source(file.texts, task))
            slices = [list(_slices(text)) for text in file.texts]
            translated: list[str] = []
            for part in _parts(list(chain.from_iterable(slices))):
                translated += await self._translate(part, task, job.record)
                job.num_done += sum(map(len, part))
            remaining = iter(translated)
            translations = ["".join(next(remaining) for _ in of_text) for of_text in slices]
            return JobResult(name, await file.write(translations))

    async def _translate(self, texts: Sequence[str], task: TranslationTask, record: RequestRecord) -> list[str]:
        source = await self._source(texts, task) if task.source == AUTO else task.source
        translations = await self._translator.translate(replace(task, texts=texts, source=source), record)
        return [translation.text for translation in translations]

    async def _source(self, texts: Sequence[str], task: TranslationTask) -> str:
        # Detected from the whole file, since a heading alone is too short.
        return await self._translator.detect_source("\n".join(texts), task.registry)

    async def close(self) -> None:
        """End the processes; call when no translation runs any more."""
        await self._pool.close()


def _slices(text: str) -> Iterator[str]:
    """`text` in pieces that end with a line each, which cuts no sentence."""
    start = 0
    while end := text.find("\n", start + _PART_CHARACTERS) + 1:
        yield text[start:end]
        start = end
    yield text[start:]


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """`texts` in order, in lists that end with the text with which they have enough characters."""
    part: list[str] = []
    num_characters = 0
    for text in texts:
        part.append(text)
        num_characters += len(text)
        if num_characters >= _PART_CHARACTERS:
            yield part
            part, num_characters = [], 0
    if part:
        yield part
