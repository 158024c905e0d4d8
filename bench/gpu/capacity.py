"""What a step costs as the cache has room for more, while its rows stay as long as they are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bench.gpu.run import Run
from bench.gpu.steps import StepShape, open_step
from export.bundle import load_bundle

_ROWS = (1, 8)
_STEPS = 20


def measure_capacity(run: Run) -> None:
    """The first decoder, with one row and with several: milliseconds of a step at each capacity."""
    for model in run.chosen(run.scale.generate)[:1]:
        bundle = load_bundle(model.bundle)
        for precision in run.precisions:
            for num_rows in _ROWS:
                first = 0.0
                for capacity in run.scale.capacities:
                    case = f"{model.name} in {precision}, {num_rows} rows, capacity {capacity}"
                    if run.record.is_late:
                        run.record.leave_out(case, "no time was left")
                        continue
                    shape = StepShape(num_rows, run.scale.prompt_tokens, capacity)
                    seconds = _median(open_step(bundle, precision, run.device, shape), run.rounds)
                    first = first or seconds
                    run.record.add(
                        {
                            "model": model.name,
                            "precision": precision,
                            "rows": num_rows,
                            "length": shape.length,
                            "capacity": capacity,
                            "milliseconds": 1000 * seconds,
                            "times_first": seconds / first,
                        }
                    )


def _median(step: Callable[[], object], rounds: int) -> float:
    step()
    seconds = []
    for _ in range(rounds * _STEPS):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
