"""Heatmaps as PNG and SVG, drawn by matplotlib; see docs/decisions/0075-attention-formats.md.

matplotlib is an extra (`pictures`), and imported by the first picture: it is large, and most servers never draw. Only
the one drawing thread draws, with figures of its own; nothing here goes through pyplot, which keeps figures for the
whole process.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import escape

from service.engine.encode.attention import Kind
from service.errors import InputError, NotAcceptableError
from service.heads.attend.report import AttentionReport, KindMaps
from service.heads.attend.selection import Outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PictureFormat = Literal["png", "svg"]

_DPI = 100
_CELL = 0.2  # inches, as all that follows
_CHARACTER = 0.075
_LONGEST_LABEL = 16
_TITLE = 0.3
_LONGEST_TITLE = 2.1
_GAP = 0.15
_SPACE = 0.05
_BAR = 0.8
_FONT_SIZE = 7.0  # points
_COLOURS = "viridis"
_WIDEST_ROW = 16.0


@dataclass(frozen=True, slots=True)
class _Panel:
    """The size of one heatmap: its cells, and room for labels at the left and above."""

    num_rows: int
    num_columns: int
    left: float
    top: float

    @property
    def width(self) -> float:
        return self.left + max(self.num_columns * _CELL, _LONGEST_TITLE) + _GAP

    @property
    def height(self) -> float:
        return self.top + self.num_rows * _CELL + _GAP


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the panels of each kind go: a block of rows for each, one below the other."""

    blocks: tuple[tuple[_Panel, int], ...]
    """A panel of each kind, and how many there are."""

    def num_columns(self, panel: _Panel, num_panels: int) -> int:
        return max(1, min(num_panels, int(_WIDEST_ROW // panel.width)))

    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        widths, height = [], 0.0
        for panel, count in self.blocks:
            columns = self.num_columns(panel, count)
            widths.append(columns * panel.width)
            height += math.ceil(count / columns) * panel.height
        return max(widths) + _BAR, height

    def num_pixels(self) -> int:
        width, height = self.size()
        return math.ceil(width * _DPI) * math.ceil(height * _DPI)


def _panel(rows: Sequence[str], columns: Sequence[str]) -> _Panel:
    left, top = (_CHARACTER * max((len(_label(text)) for text in labels), default=0) for labels in (rows, columns))
    return _Panel(len(rows), len(columns), left + _GAP, top + _TITLE + _GAP)


def check_picture(outline: Outline, max_pixels: int) -> None:
    """InputError with the numbers for a picture that would be too large."""
    selection = outline.selection
    layout = Layout(
        tuple(
            (_panel(*outline.labels(kind)), len(layers) * selection.num_maps)
            for kind, layers in selection.layers.items()
        )
    )
    if (num_pixels := layout.num_pixels()) > max_pixels:
        raise InputError(
            f"the picture would have {num_pixels} pixels ({outline}), allowed: {max_pixels}. Ask for fewer layers or "
            "heads, aggregate them, or take a shorter text",
            parameter="format",
        )


def check_drawing() -> None:
    """NotAcceptableError where this server cannot draw."""
    if find_spec("matplotlib") is None:
        raise NotAcceptableError(
            "PNG and SVG are drawn by matplotlib, which this server does not have: install polyhead[pictures], or ask "
            "for json, npz or html"
        )


def draw(report: AttentionReport, picture_format: PictureFormat) -> bytes:
    """One panel for each map, rows the queries and columns the keys, all in the same scale of colours.

    A picture shows the norms where the report has them. SVG keeps the tokens as text.
    """
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    groups = report.norms if report.norms is not None else report.maps
    layout = Layout(tuple((_panel(*_axis_labels(report, maps.kind)), _num_panels(maps)) for maps in groups))
    figure = Figure(figsize=layout.size(), dpi=_DPI, facecolor="white")
    file = io.BytesIO()
    if picture_format == "png":
        _draw_blocks(figure, layout, report, groups, _drawable)
        figure.savefig(file, format="png", metadata={"Software": None})
        return file.getvalue()
    # matplotlib's font lacks characters that a viewer's has: it writes numbers, which are then replaced by the labels.
    labels: list[str] = []

    def number(label: str) -> str:
        labels.append(label)
        return f"@{len(labels) - 1}@"

    _draw_blocks(figure, layout, report, groups, number)
    # The format of text in SVG has no other place than matplotlib's settings; this thread alone uses them.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "attention"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    svg = file.getvalue().decode()
    return re.sub(r"@(\d+)@", lambda found: escape(labels[int(found[1])]), svg).encode()


def _drawable(label: str) -> str:
    """The label with a square, as is the custom, in place of each character that matplotlib's font does not have."""
    from matplotlib.font_manager import FontProperties, findfont, get_font  # noqa: PLC0415

    font = get_font(findfont(FontProperties()))
    return "".join(character if font.get_char_index(ord(character)) else "□" for character in label)


def _num_panels(maps: KindMaps) -> int:
    return int(maps.weights.shape[0] * maps.weights.shape[1])


def _axis_labels(report: AttentionReport, kind: Kind) -> tuple[list[str], list[str]]:
    rows, columns = report.axes(kind)
    return rows.labels(), columns.labels()


def _draw_blocks(
    figure: Figure,
    layout: Layout,
    report: AttentionReport,
    groups: Sequence[KindMaps],
    write: Callable[[str], str],
) -> None:
    """All panels share one pair of axes, in inches: separate axes, with ticks, take twice as long."""
    width, height = layout.size()
    largest = max((float(maps.weights.max(initial=0.0)) for maps in groups), default=0.0) or 1.0
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0.0, width), ylim=(0.0, height))
    axes.set_axis_off()
    top, image = height, None
    for (panel, count), maps in zip(layout.blocks, groups, strict=True):
        num_columns = layout.num_columns(panel, count)
        rows, columns = ([write(_label(text)) for text in texts] for texts in _axis_labels(report, maps.kind))
        for number in range(count):
            row, column = divmod(number, num_columns)
            layer, head = divmod(number, maps.weights.shape[1])
            left, upper = column * panel.width + panel.left, top - row * panel.height - panel.top
            image = axes.imshow(
                maps.weights[layer, head],
                extent=(left, left + panel.num_columns * _CELL, upper - panel.num_rows * _CELL, upper),
                vmin=0.0,
                vmax=largest,
                cmap=_COLOURS,
                aspect="auto",
                interpolation="nearest",
            )
            _write_labels(axes, rows, columns, left, upper)
            _write(axes, left, upper + panel.top - _TITLE, _title(report, maps, layer, head), fontsize=_FONT_SIZE + 1)
        top -= math.ceil(count / num_columns) * panel.height
    if image is not None:
        bar = figure.add_axes((1 - _BAR * 0.8 / width, _GAP / height, 0.12 / width, 1 - 2 * _GAP / height))
        figure.colorbar(image, cax=bar).ax.tick_params(labelsize=_FONT_SIZE)


def _write_labels(axes: Axes, rows: Sequence[str], columns: Sequence[str], left: float, upper: float) -> None:
    """Those of the rows end at the panel, those of the columns begin at it and go up."""
    for row, text in enumerate(rows):
        _write(axes, left - _SPACE, upper - (row + 0.5) * _CELL, text, ha="right", va="center")
    for column, text in enumerate(columns):
        _write(axes, left + (column + 0.5) * _CELL, upper + _SPACE, text, ha="center", va="bottom", rotation=90)


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    # A token with two dollar signs is not a formula.
    axes.text(x, y, text, parse_math=False, **{"fontsize": _FONT_SIZE} | style)


def _title(report: AttentionReport, maps: KindMaps, layer: int, head: int) -> str:
    name = report.aggregate if maps.heads is None else f"head {maps.heads[head]}"
    return f"{maps.kind}, layer {maps.layers[layer]}, {name}"


def _label(text: str) -> str:
    """The label of a token: without invisible characters, truncated where it is long."""
    shown = "".join(
        _escaped(character) if unicodedata.category(character)[0] in "CZ" and character != " " else character
        for character in text
    )
    return shown if len(shown) <= _LONGEST_LABEL else f"{shown[: _LONGEST_LABEL - 1]}…"


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
