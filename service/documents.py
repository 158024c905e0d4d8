"""Translates whole files: the format's code runs in a thread of its own, and calls back for the sentences."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from service.errors import SlowdownError
from service.files import translate_document
from service.models import AUTO
from service.records import RequestRecord
from service.translation import TranslationTask, Translator

_WAITING_FILES_PER_THREAD = 4


class DocumentTranslator:
    """A few files at a time, in threads of their own: they wait for the event loop's threads, where texts are split."""

    def __init__(self, translator: Translator, max_concurrent_files: int) -> None:
        self._translator = translator
        self._executor = ThreadPoolExecutor(max_concurrent_files, thread_name_prefix="document")
        self._max_files = max_concurrent_files * (1 + _WAITING_FILES_PER_THREAD)
        self._num_files = 0

    async def translate(
        self, name: str, data: bytes, task: TranslationTask, record: RequestRecord
    ) -> tuple[str, bytes]:
        """The translated file and the name for it. `task` says everything but the texts.

        Raises SlowdownError when too many files wait, and what `translate_document` and `Translator.translate` raise.
        Cancelling stops the sentences in the engine, and the thread at its next call for some.
        """
        if self._num_files >= self._max_files:
            raise SlowdownError("too many files are being translated", retry_after_seconds=5.0)
        self._num_files += 1
        try:
            return await self._translate(name, data, task, record)
        finally:
            self._num_files -= 1

    async def _translate(
        self, name: str, data: bytes, task: TranslationTask, record: RequestRecord
    ) -> tuple[str, bytes]:
        loop = asyncio.get_running_loop()
        gone = threading.Event()
        running: set[concurrent.futures.Future[list[str]]] = set()

        async def translate_texts(texts: list[str]) -> list[str]:
            # A heading alone says little of its language; the whole file says it for all its parts.
            source = await self._translator.detect_source("\n".join(texts)) if task.source == AUTO else task.source
            translations = await self._translator.translate(replace(task, texts=texts, source=source), record)
            return [translation.text for translation in translations]

        def translate(texts: list[str]) -> list[str]:
            if gone.is_set():
                raise concurrent.futures.CancelledError
            future = asyncio.run_coroutine_threadsafe(translate_texts(texts), loop)
            running.add(future)
            return future.result()

        try:
            return await loop.run_in_executor(self._executor, translate_document, name, data, translate)
        except asyncio.CancelledError:
            gone.set()
            for future in running:
                future.cancel()
            raise

    def close(self) -> None:
        """Wait for the threads; call when no translation runs any more."""
        self._executor.shutdown(wait=True, cancel_futures=True)
