"""What a run has found so far: printed as it comes, written after each part, and told once more at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.tables import TABLES

Row = dict[str, Any]


class Record:
    """The rows of every part, what was left out and what failed. `path` is where JSON goes, if anywhere."""

    def __init__(
        self,
        described: Mapping[str, Any],
        path: Path | None,
        seconds: float,
        shares: Mapping[str, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._described = dict(described)
        self._path, self._clock = path, clock
        self._end = clock() + seconds
        self._shares = dict(shares)
        self._part_end = self._end
        self._part = ""
        self.rows: dict[str, list[Row]] = {}
        self.left_out: list[str] = []
        self.failed: list[str] = []

    def begin(self, part: str) -> None:
        """Give `part` its share of the time that is left, by the shares of the parts that have not begun."""
        now, rest = self._clock(), sum(self._shares.values())
        self._part_end = now + max(0.0, self._end - now) * self._shares.pop(part) / rest
        self._part = part
        self.rows[part] = []
        print(f"\n## {part}\n")
        print(TABLES[part].head(), flush=True)

    @property
    def is_late(self) -> bool:
        """Whether the part has used up its time."""
        return self._clock() >= self._part_end

    def add(self, row: Row) -> None:
        """Keep a row of the part that has begun, and print it."""
        self.rows[self._part].append(row)
        print(TABLES[self._part].line(row), flush=True)

    def leave_out(self, what: str, why: str) -> None:
        """Say what was not measured."""
        self.left_out.append(f"{self._part}: {what}: {why}")
        print(f"not measured: {what}: {why}", flush=True)

    def fail(self, error: Exception) -> None:
        """Say that the part has stopped."""
        self.failed.append(f"{self._part}: {error}")

    def write(self) -> None:
        """Write all figures so far, so that a run that is killed leaves them."""
        if self._path is not None:
            self._path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        return {**self._described, **self.rows, "left_out": self.left_out, "failed": self.failed}

    def print_all(self) -> None:
        """Every table once more, whole, with what is missing."""
        print("\n# All tables")
        for part, rows in self.rows.items():
            print(f"\n{part}\n\n{TABLES[part].head()}")
            for row in rows:
                print(TABLES[part].line(row))
        _print_list("not measured", self.left_out)
        _print_list("failed", self.failed)


def _print_list(heading: str, lines: Sequence[str]) -> None:
    for line in lines:
        print(f"\n{heading}: {line}", end="")
    print(flush=True)
