"""Translation of whole files: each is read and written by a separate process, its sentences are translated here."""

from __future__ import annotations

from dataclasses import replace

from service.errors import SlowdownError
from service.heads.translate.files.pool import FilePool
from service.heads.translate.files.protocol import FileLimits
from service.heads.translate.languages import AUTO
from service.heads.translate.translator import TranslationTask, Translator
from service.http.records import RequestRecord
from service.settings import Settings

_WAITING_FILES_PER_PROCESS = 4
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
        self._num_files = 0

    def start(self) -> None:
        """Start the processes that read files, in the background."""
        self._pool.start()

    async def translate(
        self, name: str, data: bytes, task: TranslationTask, record: RequestRecord
    ) -> tuple[str, bytes]:
        """The translated file and the name for it. `task` says everything but the texts.

        Raises SlowdownError when too many files wait, InvalidDocumentError, and what `Translator.translate` raises.
        Cancelling stops the sentences in the engine, and kills the process that reads or writes the file.
        """
        if self._num_files >= self._max_files:
            raise SlowdownError("too many files are being translated", retry_after_seconds=5.0)
        self._num_files += 1
        try:
            async with self._pool.open(name, data) as file:
                translations = await self._translate(file.texts, task, record) if file.texts else []
                return name, await file.write(translations)
        finally:
            self._num_files -= 1

    async def _translate(self, texts: list[str], task: TranslationTask, record: RequestRecord) -> list[str]:
        # Detected from the whole file, since a heading alone is too short.
        source = task.source
        if source == AUTO:
            source = await self._translator.detect_source("\n".join(texts), task.registry)
        translations = await self._translator.translate(replace(task, texts=texts, source=source), record)
        return [translation.text for translation in translations]

    async def close(self) -> None:
        """End the processes; call when no translation runs any more."""
        await self._pool.close()
