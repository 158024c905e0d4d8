"""Tables, and pictures of what they hold."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from bench import embed, generate, translate
from bench.plot import Chart, Value, draw, save
from bench.report import RATIOS, Column, Record, Table, latency, speed


def test_a_row_is_told_by_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(
        (Column("side", "side"), speed("texts", "texts/s"), latency("gap", "gap"), RATIOS, Column("host", "host"))
    )
    record = Record({"machine": "this"}, {"texts": table})
    record.begin("texts")
    row: dict[str, Any] = {
        "side": "polyhead",
        "texts_per_second": 28.4,
        "slowest_texts_per_second": 27.9,
        "fastest_texts_per_second": 31.25,
        "ratios": {"peer fp32": 1.4, "peer int8": 0.5},
        "host": [],
    }
    record.add(row)
    record.leave_out("another", "it is not installed")
    assert capsys.readouterr().out.splitlines()[3:] == [
        "| side | texts/s (min-max) | gap p50, p99 ms | times as fast as | host |",
        "|---|---|---|---|---|",
        "| polyhead | 28.4 (27.9-31.2) |  | peer fp32 1.40, peer int8 0.50 | none |",
        "not measured: another: it is not installed",
    ]
    assert record.to_dict() == {
        "machine": "this",
        "texts": [row],
        "left_out": ["texts: another: it is not installed"],
    }


def entry(side: str, precision: str, **case: Any) -> dict[str, Any]:
    """A row with every value that a chart may ask for."""
    names = [
        f"{end}{unit}_per_second"
        for unit in ("sentences", "texts", "tokens", "requests")
        for end in ("", "slowest_", "fastest_")
    ]
    names += [f"{name}_p{share}_milliseconds" for name in ("first_token", "gap", "latency") for share in (50, 99)]
    return {"side": side, "precision": precision, "smallest_cosine": 0.99, **dict.fromkeys(names, 3.0), **case}


@pytest.mark.parametrize("command", [translate, embed, generate])
def test_what_was_measured_is_drawn_and_nothing_else(command: Any, tmp_path: Path) -> None:
    case = {"batch_size": 8, "beam_size": 1, "load": "8 x 1", "streams": 1, "model": "gpt2"}
    rows = [entry(side, precision, **case) for side in ("polyhead", "another") for precision in ("fp32", "int8")]
    assert draw({part: [] for part in command.CHARTS}, tmp_path, command.CHARTS) == []
    written = draw(dict.fromkeys(command.CHARTS, rows), tmp_path, command.CHARTS)
    assert [path.name for path in written] == [chart.file for chart in command.CHARTS.values()]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_a_side_that_is_missing_from_a_group_leaves_its_place_empty(tmp_path: Path) -> None:
    rows = [
        entry("polyhead", "int8", load="a"),
        entry("polyhead", "int8", load="b"),
        entry("another", "int8", load="b"),
    ]
    assert draw(
        {"part": rows}, tmp_path / "new", {"part": Chart("one.png", (Value("texts_per_second", "texts/s"),), "load")}
    ) == [tmp_path / "new" / "one.png"]


@pytest.mark.parametrize("size", [(13, 4), (5, 4)], ids=["wide", "narrow"])
def test_names_stand_beside_the_axes_and_inside_the_picture(tmp_path: Path, size: tuple[float, float]) -> None:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, 2)
    for axis in axes:
        for number in range(7):
            axis.plot([0, 1], [number, 1], label=f"onnxruntime-genai {number}")
    save(figure, tmp_path / "chart.png")
    (legend,) = figure.legends
    names = legend.get_window_extent()
    assert len(legend.get_texts()) == 7
    assert all(axis.get_tightbbox().y0 >= names.y1 for axis in axes)
    assert names.x0 >= 0
    assert names.y0 >= 0
    assert names.x1 <= figure.bbox.width
