"""Translated files that wait for their download: in a temporary folder, for a time, within a space.

A file is found by its unguessable name alone, in a table in memory: no name that a client sends ever becomes a path.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.errors import NotFoundError, SlowdownError, StorageFullError, is_full

logger = logging.getLogger(__name__)

_PREFIX = "polyhead-files-"


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
    the file system can be read-only. Folders that a killed process left there are deleted.
    """

    def __init__(self, *, max_bytes: int, lifetime_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock
        self._folder: _OwnFolder | None = None
        self._making_folder = threading.Lock()
        self._files: dict[str, StoredFile] = {}
        self._reserved_bytes = 0
        self._sweep: asyncio.TimerHandle | None = None
        _delete_orphans()

    async def put(self, name: str, data: bytes) -> str:
        """Store `data` and return its key.

        Raises SlowdownError when there is no room until another file expires, StorageFullError when the disk is full.
        """
        self._remove_expired()
        used = self._reserved_bytes + sum(file.num_bytes for file in self._files.values())
        if used + len(data) > self._max_bytes:
            raise SlowdownError(
                "the room for translated files is taken", retry_after_seconds=self._next_expiry_seconds()
            )
        key = secrets.token_urlsafe(32)
        self._reserved_bytes += len(data)
        try:
            path = await asyncio.to_thread(self._write, key, data)
        except OSError as error:
            if is_full(error):
                raise StorageFullError from error
            raise
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
            self._folder.delete()
            self._folder = None

    def _write(self, key: str, data: bytes) -> Path:
        with self._making_folder:
            if self._folder is None:
                self._folder = _OwnFolder()
        path = self._folder.path / key
        try:
            path.write_bytes(data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _remove_expired(self) -> None:
        now = self._clock()
        for key in [key for key, file in self._files.items() if file.expires <= now]:
            self._files.pop(key).path.unlink()

    def _next_expiry_seconds(self) -> float:
        return min((file.expires - self._clock() for file in self._files.values()), default=1.0)

    def _schedule_sweep(self) -> None:
        """Delete files as they expire, also without requests."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = None
        if self._files:
            delay = max(0.0, self._next_expiry_seconds())
            self._sweep = asyncio.get_running_loop().call_later(math.nextafter(delay, math.inf), self._on_sweep)

    def _on_sweep(self) -> None:
        self._remove_expired()
        self._schedule_sweep()


if sys.platform == "win32":

    class _OwnFolder:
        """A folder of this process."""

        def __init__(self) -> None:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))

        def delete(self) -> None:
            shutil.rmtree(self.path)

    def _delete_orphans() -> None:
        """Windows cannot lock a folder, so it is unknown whether its process still runs: nothing is deleted."""

else:
    import fcntl

    class _OwnFolder:
        """A folder of this process, locked while it runs: a folder that can be locked belongs to no process."""

        def __init__(self) -> None:
            while True:
                self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if self.path.exists():  # else another process took it for an orphan before it was locked
                    return
                os.close(self._lock)

        def delete(self) -> None:
            shutil.rmtree(self.path)
            os.close(self._lock)

    def _delete_orphans() -> None:
        """Delete the folders of processes that were killed."""
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            try:
                # No link is followed, and no folder of another user's touched, as anybody may write to a temp folder.
                lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                    logger.info("deleted the files of a process that was killed: %s", path)
            except BlockingIOError:
                continue  # its process still runs
            finally:
                os.close(lock)
