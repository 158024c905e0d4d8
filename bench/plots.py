"""Charts of a benchmark's results, from the mapping that the JSON file holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # files only; no display is needed

import matplotlib.pyplot as plt

_COLOURS = {"polyhead": "#2a6f97", "ctranslate2": "#c9a227", "ctranslate2 gathered": "#bc4749"}


def plot(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what was measured into `folder`; returns the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    if results["batches"]:
        written.append(_plot_batches(results, folder / "benchmark-batches.png"))
    if results["arrivals"]:
        written.append(_plot_arrivals(results, folder / "benchmark-arrivals.png"))
    return written


def _plot_batches(results: Mapping[str, Any], path: Path) -> Path:
    """Sentences a second over batch sizes, a panel for each precision and beam; bars from slowest to fastest round."""
    cases = results["batches"]
    panels = sorted({(case["precision"], case["beam_size"]) for case in cases})
    figure, axes = plt.subplots(1, len(panels), figsize=(3.2 * len(panels), 3), squeeze=False, layout="constrained")
    for axis, (precision, beam_size) in zip(axes[0], panels, strict=True):
        chosen = [case for case in cases if (case["precision"], case["beam_size"]) == (precision, beam_size)]
        places = range(len(chosen))
        for offset, side in ((-0.2, "ours"), (0.2, "theirs")):
            heights = [case[side]["sentences_per_second"] for case in chosen]
            low = [
                height - case[side]["slowest_sentences_per_second"]
                for height, case in zip(heights, chosen, strict=True)
            ]
            high = [
                case[side]["fastest_sentences_per_second"] - height
                for height, case in zip(heights, chosen, strict=True)
            ]
            name = chosen[0][side]["name"]
            axis.bar(
                [place + offset for place in places], heights, 0.4, label=name, color=_COLOURS[name], yerr=[low, high]
            )
        axis.set_title(f"{precision}, {'greedy' if beam_size == 1 else f'beam {beam_size}'}")
        axis.set_xticks(list(places), [f"{case['batch_size']}\n{case['ratio']:.2f}x" for case in chosen])
        axis.set_xlabel("batch, and how many times faster we are")
    axes[0][0].set_ylabel("sentences/s")
    axes[0][0].legend()
    return _save(figure, path)


def _plot_arrivals(results: Mapping[str, Any], path: Path) -> Path:
    """Throughput and 99th-percentile latency of every load, one pair of panels for each precision."""
    loads = results["arrivals"]
    precisions = list(dict.fromkeys(load["precision"] for load in loads))
    figure, axes = plt.subplots(
        len(precisions), 2, figsize=(9, 3 * len(precisions)), squeeze=False, layout="constrained"
    )
    for row, precision in zip(axes, precisions, strict=True):
        chosen = [load for load in loads if load["precision"] == precision]
        names = list(dict.fromkeys(load["load"] for load in chosen))
        sides = list(dict.fromkeys(load["side"] for load in chosen))
        width = 0.8 / len(sides)
        for number, side in enumerate(sides):
            own = {load["load"]: load for load in chosen if load["side"] == side}
            places = [place + (number - (len(sides) - 1) / 2) * width for place in range(len(names))]
            for axis, key in zip(row, ("requests_per_second", "p99_milliseconds"), strict=True):
                axis.bar(places, [own[name][key] for name in names], width, label=side, color=_COLOURS[side])
        for axis, title in zip(row, ("requests/s", "99 % answered within, ms"), strict=True):
            axis.set_title(f"{precision}: {title}")
            axis.set_xticks(range(len(names)), names)
        row[1].set_yscale("log")
        row[0].legend()
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return path
