"""What the charts of all benchmarks share: drawing without a display, names that lie over nothing, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # files only; no display is needed

import matplotlib.pyplot as plt

OURS, THEIRS = "#2a6f97", "#c9a227"

_ROW_INCHES = 0.22
_CHARACTER_INCHES, _SIGN_INCHES = 0.075, 0.6
"""What a name in a legend takes: its letters at most, and the sign before it with the gap behind."""

Chart = Callable[[Any, Path], Path]
"""Draws the entries of one part of the results into a file; returns the file."""


def draw(results: Mapping[str, Any], folder: Path, charts: Mapping[str, tuple[Chart, str]]) -> list[Path]:
    """Draw every part of `results` that was measured into the file that `charts` name; returns the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    return [chart(results[part], folder / name) for part, (chart, name) in charts.items() if results[part]]


def save(figure: Any, path: Path) -> Path:
    """Write the figure and forget it. Names of what was drawn stand below all axes, where they can hide nothing."""
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
    plt.close(figure)
    return path
