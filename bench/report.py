"""What a benchmark finds: rows by part, printed as they come as tables in Markdown, and kept for the JSON file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.machine import busy_warning, describe_machine

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A row's `key`, or several keys in a `layout`, under a `heading`; `form` is a format specification."""

    key: str | tuple[str, ...]
    heading: str
    form: str = ""
    layout: str = "{}"

    def text(self, row: Row) -> str:
        """Nothing where the row lacks a value."""
        keys = (self.key,) if isinstance(self.key, str) else self.key
        values = [row.get(key) for key in keys]
        return "" if None in values else self.layout.format(*map(self._one, values))

    def _one(self, value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        if isinstance(value, Mapping):
            return ", ".join(f"{name} {format(number, self.form)}" for name, number in value.items())
        return format(value, self.form)


def speed(unit: str, heading: str) -> Column:
    """Units a second: the median, the slowest and the fastest round."""
    keys = tuple(f"{name}{unit}_per_second" for name in ("", "slowest_", "fastest_"))
    return Column(keys, f"{heading} (min-max)", ".1f", "{} ({}-{})")


def latency(name: str, heading: str) -> Column:
    """The median and the 99th percentile in milliseconds."""
    keys = tuple(f"{name}_p{share}_milliseconds" for share in (50, 99))
    return Column(keys, f"{heading} p50, p99 ms", ".1f", "{}, {}")


SIDE = (Column("side", "side"), Column("precision", "precision"), Column("setting", "threads"))
RATIOS = Column("ratios", "times as fast as", ".2f")
KEPT = Column("kept", "of the engine", ".0%")
TOKENS = Column("tokens_per_second", "tokens/s", ".0f")


@dataclass(frozen=True)
class Table:
    """Columns from left to right."""

    columns: tuple[Column, ...]

    def head(self) -> str:
        """The headings and the line below them."""
        headings = " | ".join(column.heading for column in self.columns)
        return f"| {headings} |\n{'|---' * len(self.columns)}|"

    def line(self, row: Row) -> str:
        """One row."""
        return f"| {' | '.join(column.text(row) for column in self.columns)} |"


AGREEMENT = Table(
    (
        Column("model", "model"),
        Column("side", "side"),
        Column("precision", "precision"),
        Column("beam_size", "beam"),
        Column("equal_tokens", "equal tokens", ".1%"),
        Column("equal_outputs", "equal texts", ".1%"),
        Column("different_tokens", "different tokens of a text", ".0%"),
    )
)
"""How much of what a side writes is what the reference writes."""


class Record:
    """The rows of every part, and what was left out. `described` opens the JSON file: machine, models, versions."""

    def __init__(self, described: Mapping[str, Any], tables: Mapping[str, Table]) -> None:
        self.described = dict(described)
        self._tables = dict(tables)
        self.part = ""
        self.rows: dict[str, list[Row]] = {}
        self.left_out: list[str] = []

    def begin(self, part: str, heading: str = "") -> None:
        """Print the head of a part's table; rows belong to it from here on."""
        self.part = part
        self.rows.setdefault(part, [])
        print(f"\n{heading or part}\n\n{self._tables[part].head()}", flush=True)

    def add(self, row: Row) -> None:
        """Keep a row of the part that has begun, and print it."""
        self.rows[self.part].append(row)
        print(self._tables[self.part].line(row), flush=True)

    def leave_out(self, what: str, why: str) -> None:
        """Say what was not measured."""
        self.left_out.append(f"{self.part}: {what}: {why}" if self.part else f"{what}: {why}")
        print(f"not measured: {what}: {why}", flush=True)

    def to_dict(self) -> dict[str, Any]:
        return {**self.described, **self.rows, "left_out": self.left_out}


def begin(num_threads: int, tune_peer: Callable[[Sequence[str]], str]) -> dict[str, Any]:
    """Print the machine, the versions, and whether other work disturbs; returns them, as the JSON file holds them.

    `tune_peer` gives CTranslate2 its best kernels for the processor's features from here on, and says which.
    """
    machine = describe_machine()
    machine["ctranslate2_environment"] = tune_peer(machine["cpu_flags"])
    print(f"{machine['cpu']}, {machine['cores']} cores, {' '.join(machine['cpu_flags'])}")
    print(", ".join([f"Python {machine['python']}", *(f"{k} {v}" for k, v in machine["versions"].items())]))
    print(f"CTranslate2 with {machine['ctranslate2_environment']}")
    print(f"{num_threads} threads on each side, load average {' '.join(map(str, machine['load_average']))}")
    if warning := busy_warning(machine["load_average"][0], machine["cores"]):
        print(warning)
    print(flush=True)
    return machine
