"""What a run has found so far: printed as it comes, written after each part, and told once more at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import report
from bench.gpu.tables import TABLES


class Record(report.Record):
    """A record within a time, with what failed. `path` is where JSON goes, if anywhere."""

    def __init__(
        self,
        described: Mapping[str, Any],
        path: Path | None,
        seconds: float,
        shares: Mapping[str, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(described, TABLES)
        self._path, self._clock = path, clock
        self._end = clock() + seconds
        self._shares = dict(shares)
        self._part_end = self._end
        self.failed: list[str] = []

    def begin(self, part: str, heading: str = "") -> None:
        """Give `part` its share of the time that is left, by the shares of the parts that have not begun."""
        now, rest = self._clock(), sum(self._shares.values())
        self._part_end = now + max(0.0, self._end - now) * self._shares.pop(part) / rest
        super().begin(part, heading or f"## {part}")

    @property
    def is_late(self) -> bool:
        """Whether the part has used up its time."""
        return self._clock() >= self._part_end

    def fail(self, error: Exception) -> None:
        """Say that the part has stopped."""
        self.failed.append(f"{self.part}: {error}")

    def write(self) -> None:
        """Write all figures so far, so that a run that is killed leaves them."""
        if self._path is not None:
            self._path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "failed": self.failed}

    def print_all(self) -> None:
        """Every table once more, whole, with what is missing."""
        print("\n# All tables")
        for part, rows in self.rows.items():
            print(f"\n{part}\n\n{TABLES[part].head()}")
            for row in rows:
                print(TABLES[part].line(row))
        for line in (
            *(f"not measured: {what}" for what in self.left_out),
            *(f"failed: {what}" for what in self.failed),
        ):
            print(f"\n{line}", end="")
        print(flush=True)
