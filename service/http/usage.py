"""What each API key has used in a month: counted in memory, and written to a file by a thread."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from service.errors import QuotaExceededError, StartupError
from service.http.keys import ApiKey

logger = logging.getLogger(__name__)

_WRITING_SECONDS = 5.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS usage (month TEXT NOT NULL, key TEXT NOT NULL, characters INTEGER NOT NULL, "
    "requests INTEGER NOT NULL, PRIMARY KEY (month, key)) WITHOUT ROWID"
)
_ADD = (
    "INSERT INTO usage (month, key, characters, requests) VALUES (?, ?, ?, ?) ON CONFLICT (month, key) DO UPDATE SET "
    "characters = characters + excluded.characters, requests = requests + excluded.requests"
)
_SELECT = "SELECT month, key, characters, requests FROM usage WHERE month = ?"

_Place = tuple[str, str]
"""A month ("2026-11") and the name of a key."""


@dataclass(slots=True)
class Usage:
    """What a key has used in one month."""

    characters: int = 0
    requests: int = 0

    def add(self, other: Usage) -> None:
        self.characters += other.characters
        self.requests += other.requests


class UsageBook:
    """Counts for all keys, months in UTC.

    With a `path`, a thread adds what is new to the SQLite file there at intervals and at the end, and reads what other
    processes have added. Until then, each process knows of the others what it has read last. Safe for several threads.
    Raises StartupError for a file that cannot be used.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        writing_seconds: float = _WRITING_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._path = path
        self._writing_seconds = writing_seconds
        self._now = now
        self._lock = threading.Lock()
        self._stored: dict[_Place, Usage] = {}
        self._new: dict[_Place, Usage] = {}
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        if path is not None:
            try:
                self._write()
            except (sqlite3.Error, OSError) as error:
                raise StartupError(f"POLYHEAD_USAGE_FILE (--usage-file) {path} cannot be used: {error}") from error

    def start(self) -> None:
        """Begin to write at intervals."""
        if self._path is not None:
            self._thread = threading.Thread(target=self._write_at_intervals, name="usage", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what is left."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def used(self, name: str) -> Usage:
        """What the key `name` has used this month."""
        with self._lock:
            return self._used((self._month(), name))

    def count_request(self, name: str) -> None:
        """Count a request of the key `name`."""
        with self._lock:
            self._of((self._month(), name)).requests += 1

    def charge(self, key: ApiKey, num_characters: int) -> str:
        """Count characters, and tell the month; QuotaExceededError where the key may not use so many more in it."""
        place = self._month(), key.name
        with self._lock:
            limit = key.characters_per_month
            if limit is not None and (used := self._used(place).characters) + num_characters > limit:
                raise QuotaExceededError(used, num_characters, limit)
            self._of(place).characters += num_characters
        return place[0]

    def refund(self, name: str, month: str, num_characters: int) -> None:
        """Take back characters that were charged in the `month`: they were not worked on."""
        with self._lock:
            self._of((month, name)).characters -= num_characters

    def _month(self) -> str:
        now = self._now()
        return f"{now.year}-{now.month:02}"

    def _of(self, place: _Place) -> Usage:
        return self._new.setdefault(place, Usage())

    def _used(self, place: _Place) -> Usage:
        usage = Usage()
        for counts in (self._stored, self._new):
            usage.add(counts.get(place, Usage()))
        return usage

    def _write_at_intervals(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(self._writing_seconds)
            try:
                self._write()
            except (sqlite3.Error, OSError):
                logger.exception("the usage of API keys could not be written to %s; it is tried again", self._path)

    def _write(self) -> None:
        """Add what is new to the file, and read what it has. A fault leaves all counts as they were."""
        month = self._month()
        with self._lock:
            taken = {place: Usage(usage.characters, usage.requests) for place, usage in self._new.items()}
        with self._transaction() as connection:
            connection.executemany(_ADD, [(*place, usage.characters, usage.requests) for place, usage in taken.items()])
            rows = connection.execute(_SELECT, (month,)).fetchall()
        with self._lock:
            for place, usage in taken.items():
                self._new[place].add(Usage(-usage.characters, -usage.requests))
            self._new = {place: usage for place, usage in self._new.items() if usage != Usage()}
            self._stored = {(found, name): Usage(characters, requests) for found, name, characters, requests in rows}

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._path is not None  # without a file nothing is written
        with closing(sqlite3.connect(self._path, timeout=self._writing_seconds)) as connection, connection:
            connection.execute(_SCHEMA)
            yield connection


@dataclass(frozen=True, slots=True)
class Account:
    """A key and the book that its use is counted in."""

    key: ApiKey
    book: UsageBook

    @property
    def used(self) -> Usage:
        """What the key has used this month."""
        return self.book.used(self.key.name)
