"""Charts of `python -m bench generate`, from the mapping that the JSON file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bench.figures import OURS, THEIRS, draw, save

_COLOURS = {
    "polyhead": OURS,
    "polyhead batch at a time": "#89c2d9",
    "ctranslate2": THEIRS,
    "ctranslate2 gathered": "#bc4749",
    "transformers": "#6a994e",
    "onnxruntime-genai": "#7b2cbf",
}
_STYLES = {"fp32": "-", "int8": "--", "int4": ":"}


def plot_generate(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what was measured into `folder`; returns the files written."""
    charts = {
        "batches": (_plot_streams, "benchmark-generate.png"),
        "arrivals": (_plot_arrivals, "benchmark-generate-arrivals.png"),
    }
    return draw(results, folder, charts)


def _plot_streams(cases: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Tokens a second over the number of streams, a panel for each model; bars from slowest to fastest round."""
    models = list(dict.fromkeys(case["model"] for case in cases))
    figure, axes = plt.subplots(1, len(models), figsize=(5 * len(models), 4), squeeze=False, layout="constrained")
    for axis, model in zip(axes[0], models, strict=True):
        entries = [side for case in cases if case["model"] == model for side in case["sides"]]
        for name, precision in dict.fromkeys((entry["side"], entry["precision"]) for entry in entries):
            own = [entry for entry in entries if (entry["side"], entry["precision"]) == (name, precision)]
            speeds = [entry["tokens_per_second"] for entry in own]
            low = [entry["tokens_per_second"] - entry["slowest_tokens_per_second"] for entry in own]
            high = [entry["fastest_tokens_per_second"] - entry["tokens_per_second"] for entry in own]
            axis.errorbar(
                [entry["streams"] for entry in own],
                speeds,
                yerr=[low, high],
                label=f"{name} {precision}",
                color=_COLOURS[name],
                linestyle=_STYLES[precision],
                marker="o",
            )
        axis.set_title(model)
        axis.set_xscale("log", base=2)
        counts = sorted({entry["streams"] for entry in entries})
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set_xlabel("streams")
        axis.set_ylabel("tokens/s")
        axis.set_ylim(bottom=0)
    return save(figure, path)


def _plot_arrivals(loads: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """The first token, the gap and the whole answer over the load: medians as bars, up to the 99th percentile."""
    shares = sorted({load["share_of_capacity"] for load in loads})
    sides = list(dict.fromkeys(load["side"] for load in loads))
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    width = 0.85 / len(sides)
    panels = (("first_token", "first token, ms"), ("gap", "gap between tokens, ms"), ("latency", "whole answer, ms"))
    for axis, (key, title) in zip(axes, panels, strict=True):
        for number, side in enumerate(sides):
            own = {load["share_of_capacity"]: load for load in loads if load["side"] == side}
            places = [place + (number - (len(sides) - 1) / 2) * width for place in range(len(shares))]
            medians = [own[share][f"{key}_p50_milliseconds"] for share in shares]
            slowest = [own[share][f"{key}_p99_milliseconds"] for share in shares]
            reach = [high - median for high, median in zip(slowest, medians, strict=True)]
            none = [0.0] * len(shares)
            axis.bar(places, medians, width, yerr=[none, reach], capsize=3, label=side, color=_COLOURS[side])
        axis.set_title(f"{loads[0]['model']} {loads[0]['precision']}: {title}, p50 to p99")
        axis.set_xticks(range(len(shares)), [f"{share:.0%}" for share in shares])
        axis.set_xlabel("load, of our capacity")
        axis.set_yscale("log")
    return save(figure, path)
