"""Charts of a benchmark's results, from the mapping that the JSON file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bench.figures import OURS, THEIRS, draw, save

_COLOURS = {"polyhead": OURS, "ctranslate2": THEIRS, "ctranslate2 gathered": "#bc4749"}


def plot(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what was measured into `folder`; returns the files written."""
    charts = {
        "batches": (_plot_batches, "benchmark-batches.png"),
        "arrivals": (_plot_arrivals, "benchmark-arrivals.png"),
    }
    return draw(results, folder, charts)


def _plot_batches(cases: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Sentences a second over batch sizes, a panel for each precision and beam; bars from slowest to fastest round."""
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
        axis.set_xlabel("batch, and our speed over theirs")
    axes[0][0].set_ylabel("sentences/s")
    return save(figure, path)


def _plot_arrivals(loads: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Throughput and 99th-percentile latency of every load, one pair of panels for each precision."""
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
    return save(figure, path)
