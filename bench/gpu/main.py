"""One run: prepare the models, measure the ceilings, then part after part, each within its share of the time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.capacity import measure_capacity
from bench.gpu.device import PRECISIONS, Ceilings, check_device, describe_device, measure_ceilings
from bench.gpu.http import measure_http_share
from bench.gpu.models import PreparedModel, prepare_models
from bench.gpu.parity import measure_parity
from bench.gpu.placement import measure_placement
from bench.gpu.record import Record
from bench.gpu.run import Run
from bench.gpu.scale import FULL, TINY, Scale
from bench.gpu.speed import measure_embed, measure_generate, measure_translate
from bench.gpu.tables import PARTS
from bench.machine import busy_warning, describe_machine
from bench.models import CACHE
from bench.side import BenchError
from export.bundle import find_bundles
from service.models.choices import GREEDY_STEPS
from service.settings import Settings

logger = logging.getLogger(__name__)

MEASURES: dict[str, Callable[[Run], None]] = {
    "parity": measure_parity,
    "placement": measure_placement,
    "translate": measure_translate,
    "embed": measure_embed,
    "generate": measure_generate,
    "capacity": measure_capacity,
    "http": measure_http_share,
}

_SHARES = {"parity": 2, "placement": 1, "translate": 4, "embed": 2, "generate": 3, "capacity": 1, "http": 1}
"""Of the time, by part."""

SCALES = {"cuda": FULL, "cpu": TINY}


@dataclass(frozen=True)
class GpuOptions:
    """What to measure; see `python -m bench gpu --help`."""

    device: str = "cuda"
    parts: Sequence[str] = PARTS
    models: Sequence[str] = ()
    """Of the measured shapes; none means all."""
    precisions: Sequence[str] = PRECISIONS
    bundles: Path = Path("bundles")
    minutes: float = 8.0
    rounds: int = 7
    cuda_graphs: bool = True
    group_query: bool = False
    json: Path | None = None
    cache: Path = CACHE
    prepares_only: bool = False


def run_gpu(options: GpuOptions) -> dict[str, Any]:
    """Measure all that `options` ask for, and print it as it comes; BenchError when a part failed, at the end."""
    scale = SCALES[options.device]
    if not options.prepares_only:
        check_device(options.device)
    names = _chosen(scale, options.models)
    models = prepare_models(scale, names, options.cache, group_query=options.group_query)
    if options.prepares_only:
        return {"prepared": names}
    described = _describe(options, models)
    ceilings = measure_ceilings(options.device, scale)
    described["ceilings"] = ceilings.to_dict()
    _print_ceilings(ceilings)
    shares = {part: _SHARES[part] for part in options.parts}
    record = Record(described, options.json, 60 * options.minutes, shares)
    bundles = find_bundles(options.bundles)
    run = Run(
        options.device,
        scale,
        options.precisions,
        options.rounds,
        models,
        bundles,
        ceilings,
        record,
        options.cuda_graphs,
    )
    for part in (part for part in PARTS if part in options.parts):
        record.begin(part)
        try:
            MEASURES[part](run)
        except Exception as error:  # every library has its own kinds, and the other parts can still be measured
            logger.exception("%s stopped", part)
            record.fail(error)
        record.write()
    record.print_all()
    if record.failed:
        raise BenchError(f"{len(record.failed)} of {len(shares)} parts failed: {'; '.join(record.failed)}")
    return record.to_dict()


def _chosen(scale: Scale, models: Sequence[str]) -> list[str]:
    unknown = [name for name in models if name not in scale.models]
    if unknown:
        raise BenchError(f"model {', '.join(unknown)} is unknown here, allowed: {', '.join(scale.models)}")
    return [name for name in scale.models if not models or name in models]


def _describe(options: GpuOptions, models: dict[str, PreparedModel]) -> dict[str, Any]:
    machine, device = describe_machine(), describe_device(options.device)
    sizes = {name: model.checkpoint.model.num_parameters() for name, model in models.items()}
    print(f"{device.get('name', 'no GPU')}; {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}")
    print(", ".join(f"{name} {value}" for name, value in (machine["versions"] | device).items()))
    print(", ".join(f"{name} {size / 1e6:.1f} M parameters" for name, size in sizes.items()))
    if options.device == "cpu":
        print("tiny models on the processor: this tries the script, its figures mean nothing")
    if warning := busy_warning(machine["load_average"][0], machine["cores"]):
        print(warning)
    settings = {
        "cuda_graphs": options.cuda_graphs,
        "group_query": options.group_query,
        "greedy_steps": Settings().greedy_steps or GREEDY_STEPS["cuda"],
    }
    return {"machine": machine, "gpu": device, "parameters": sizes, **settings}


def _print_ceilings(ceilings: Ceilings) -> None:
    rates = ", ".join(f"{rate / 1e12:.2f} in {name}" for name, rate in ceilings.operations_per_second.items())
    print(f"measured: {ceilings.bytes_per_second / 1e9:.0f} GB/s copied, TFLOP/s {rates}", flush=True)
