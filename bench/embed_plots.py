"""Charts of `python -m bench embed`, from the mapping that the JSON file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bench.figures import OURS, THEIRS, draw, save


def plot_embed(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what was measured into `folder`; returns the files written."""
    charts = {"texts": (_plot_texts, "benchmark-embed.png"), "http": (_plot_loads, "benchmark-embed-http.png")}
    return draw(results, folder, charts)


def _name(side: Mapping[str, Any]) -> str:
    return f"{side['side']} {side['precision']}"


def _plot_texts(sides: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Texts a second of each side, from slowest to fastest round, with the smallest cosine beside the bar."""
    figure, axis = plt.subplots(figsize=(8, 0.5 * len(sides) + 1), layout="constrained")
    ordered = sorted(sides, key=lambda side: float(side["texts_per_second"]))
    speeds = [side["texts_per_second"] for side in ordered]
    spread = [
        [side["texts_per_second"] - side["slowest_texts_per_second"] for side in ordered],
        [side["fastest_texts_per_second"] - side["texts_per_second"] for side in ordered],
    ]
    colours = [OURS if side["side"] == "polyhead" else THEIRS for side in ordered]
    bars = axis.barh([_name(side) for side in ordered], speeds, color=colours, xerr=spread)
    axis.bar_label(bars, [f"  {side['smallest_cosine']:.4f}" for side in ordered])
    axis.set_xlabel("texts/s; beside each bar the smallest cosine to float32")
    axis.margins(x=0.15)
    return save(figure, path)


def _plot_loads(loads: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Throughput and 99th percentile of the latency over the loads, a group of bars for each load."""
    names = list(dict.fromkeys(f"{load['clients']} x {load['texts_per_request']}" for load in loads))
    sides = list(dict.fromkeys(_name(load) for load in loads))
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
    width = 0.85 / len(sides)
    for number, side in enumerate(sides):
        own = [load for load in loads if _name(load) == side]
        places = [place + (number - (len(sides) - 1) / 2) * width for place in range(len(own))]
        for axis, key in zip(axes, ("texts_per_second", "p99_milliseconds"), strict=True):
            axis.bar(places, [load[key] for load in own], width, label=side)
    for axis, title in zip(axes, ("texts/s", "99 % answered within, ms"), strict=True):
        axis.set_title(title)
        axis.set_xticks(range(len(names)), names)
        axis.set_xlabel("clients x texts in a request")
    axes[1].set_yscale("log")
    return save(figure, path)
