"""Translated files that wait for their download: in a temporary folder, for a time, within a space.

A file is found by its unguessable name alone, in a table in memory: no name that a client sends ever becomes a path.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.errors import NotFoundError, SlowdownError


@dataclass(frozen=True, slots=True)
class StoredFile:
    """`name` is what the user's file is called; `path` is ours."""

    name: str
    path: Path
    num_bytes: int
    expires: float


class FileStore:
    """Keeps files until they expire. For use on one event loop.

    The folder is made under the system's temporary folder (TMPDIR), the only one written to, so that all the rest of
    the file system can be read-only.
    """

    def __init__(self, *, max_bytes: int, lifetime_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock
        self._folder: Path | None = None
        self._files: dict[str, StoredFile] = {}
        self._reserved_bytes = 0
        self._sweep: asyncio.TimerHandle | None = None

    async def put(self, name: str, data: bytes) -> str:
        """Store `data` and return its key. SlowdownError when there is no room until another file expires."""
        self._remove_expired()
        used = self._reserved_bytes + sum(file.num_bytes for file in self._files.values())
        if used + len(data) > self._max_bytes:
            raise SlowdownError(
                "the room for translated files is taken", retry_after_seconds=self._next_expiry_seconds()
            )
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="polyhead-"))
        key = secrets.token_urlsafe(32)
        path = self._folder / key
        self._reserved_bytes += len(data)
        try:
            await asyncio.to_thread(path.write_bytes, data)
        finally:
            self._reserved_bytes -= len(data)
        self._files[key] = StoredFile(name, path, len(data), self._clock() + self._lifetime_seconds)
        self._schedule_sweep()
        return key

    def get(self, key: str) -> StoredFile:
        """The file of `key`; NotFoundError when there is none, or none any more."""
        self._remove_expired()
        if key not in self._files:
            raise NotFoundError(
                "There is no such file, or it has expired: a translated file can be downloaded for "
                f"{self._lifetime_seconds:g} seconds"
            )
        return self._files[key]

    def close(self) -> None:
        """Delete everything."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._files.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def _remove_expired(self) -> None:
        now = self._clock()
        for key in [key for key, file in self._files.items() if file.expires <= now]:
            self._files.pop(key).path.unlink()

    def _next_expiry_seconds(self) -> float:
        return min((file.expires - self._clock() for file in self._files.values()), default=1.0)

    def _schedule_sweep(self) -> None:
        """Wake when the next file expires, so that files also go when nobody asks for any."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = None
        if self._files:
            delay = max(0.0, self._next_expiry_seconds())
            self._sweep = asyncio.get_running_loop().call_later(math.nextafter(delay, math.inf), self._on_sweep)

    def _on_sweep(self) -> None:
        self._remove_expired()
        self._schedule_sweep()
