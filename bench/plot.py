"""Charts of a benchmark's rows: groups of bars, a bar for each side, a panel for each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COLOURS = {"polyhead": "#2a6f97", "ctranslate2": "#c9a227", "ctranslate2 gathered": "#bc4749"}
_MORE_COLOURS = ("#89c2d9", "#6a994e", "#7b2cbf", "#e07a5f", "#8d99ae")
_HATCHES = {"fp32": "", "bf16": "xx", "int8": "//", "int4": ".."}

_ROW_INCHES = 0.22
_CHARACTER_INCHES, _SIGN_INCHES = 0.075, 0.6
"""What a name in a legend takes: its letters at most, and the sign before it with the gap behind."""


@dataclass(frozen=True)
class Value:
    """What a panel shows of a row: `key`, and where they are named the ends of its error bar and a text beside it."""

    key: str
    title: str
    low: str = ""
    high: str = ""
    note: str = ""
    log: bool = False


@dataclass(frozen=True)
class Chart:
    """One picture of a part: a row of panels for each value of `panels`, a group of bars for each of `groups`."""

    file: str
    values: tuple[Value, ...]
    groups: str
    panels: tuple[str, ...] = ()


def speed(unit: str, title: str, note: str = "") -> Value:
    """Units a second, from the slowest to the fastest round."""
    return Value(f"{unit}_per_second", title, f"slowest_{unit}_per_second", f"fastest_{unit}_per_second", note)


def latency(name: str, title: str) -> Value:
    """Milliseconds from the median to the 99th percentile."""
    median = f"{name}_p50_milliseconds"
    return Value(median, f"{title}, p50 to p99, ms", median, f"{name}_p99_milliseconds", log=True)


def draw(results: Mapping[str, Any], folder: Path, charts: Mapping[str, Chart]) -> list[Path]:
    """Draw every part of `results` that was measured and has a chart into `folder`; returns the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_draw(results[part], chart, folder / chart.file) for part, chart in charts.items() if results.get(part)]


def _draw(rows: Sequence[Mapping[str, Any]], chart: Chart, path: Path) -> Path:
    # Here, because a run without plots needs no plotting library.
    from matplotlib.figure import Figure  # noqa: PLC0415

    panels = list(dict.fromkeys(tuple(row[key] for key in chart.panels) for row in rows))
    size = (5.0 * len(chart.values), 3.2 * len(panels))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(panels), len(chart.values), squeeze=False)
    for line, panel in zip(axes, panels, strict=True):
        chosen = [row for row in rows if tuple(row[key] for key in chart.panels) == panel]
        for axis, value in zip(line, chart.values, strict=True):
            _draw_bars(axis, chosen, chart.groups, value)
            axis.set_title(" ".join(map(str, (*panel, value.title))))
    return save(figure, path)


def _draw_bars(axis: Any, rows: Sequence[Mapping[str, Any]], groups: str, value: Value) -> None:
    names = list(dict.fromkeys(row[groups] for row in rows))
    sides = list(dict.fromkeys((row["side"], row["precision"]) for row in rows))
    others = [side for side in dict.fromkeys(side for side, _ in sides) if side not in _COLOURS]
    width = 0.85 / len(sides)
    for number, (side, precision) in enumerate(sides):
        own = [row for row in rows if (row["side"], row["precision"]) == (side, precision)]
        places = [names.index(row[groups]) + (number - (len(sides) - 1) / 2) * width for row in own]
        heights = [row[value.key] for row in own]
        ends = None
        if value.low:
            below = [height - row[value.low] for height, row in zip(heights, own, strict=True)]
            ends = [below, [row[value.high] - height for height, row in zip(heights, own, strict=True)]]
        colour = _COLOURS.get(side) or _MORE_COLOURS[others.index(side) % len(_MORE_COLOURS)]
        bars = axis.bar(
            places,
            heights,
            width,
            yerr=ends,
            capsize=3,
            label=f"{side} {precision}",
            color=colour,
            hatch=_HATCHES.get(precision, ""),
            edgecolor="white",
        )
        if value.note:
            axis.bar_label(bars, [f"{row[value.note]:.4f}" for row in own], fontsize=7)
    axis.set_xticks(range(len(names)), list(map(str, names)))
    axis.set_xlabel(groups.replace("_", " "))
    if value.log:
        axis.set_yscale("log")


def save(figure: Any, path: Path) -> Path:
    """Write the figure. Names of what was drawn stand below all axes, where they can hide nothing."""
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    if entries:
        width, height = figure.get_size_inches()
        room = _SIGN_INCHES + _CHARACTER_INCHES * max(map(len, entries))
        columns = min(len(entries), max(1, int(width / room)))
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)
        figure.set_size_inches(width, height + _ROW_INCHES * -(-len(entries) // columns))
    figure.savefig(path, dpi=90)
    return path
