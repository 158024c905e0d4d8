from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from bench.figures import draw, save


@pytest.mark.parametrize("size", [(13, 4), (5, 4)], ids=["wide", "narrow"])
def test_names_stand_beside_the_axes_and_inside_the_picture(tmp_path: Path, size: tuple[float, float]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=size, layout="constrained")
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


def test_only_what_was_measured_is_drawn(tmp_path: Path) -> None:
    def chart(entries: list[int], path: Path) -> Path:
        figure, axis = plt.subplots(layout="constrained")
        axis.plot(entries)
        return save(figure, path)

    charts = {"one": (chart, "one.png"), "other": (chart, "other.png")}
    assert draw({"one": [], "other": [1, 2]}, tmp_path / "new", charts) == [tmp_path / "new" / "other.png"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["other.png"]
