"""Our engines beside PyTorch eager and compiled, and CTranslate2 where it translates, taking turns.

All have the same weights, tokens and lengths.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from bench.gpu.models import PreparedModel
from bench.gpu.ours import Steps, TokenIds, Tokens, open_decoder, write
from bench.gpu.run import Run
from bench.gpu.work import Work, encoder_work, step_work
from bench.ours import EngineEncoder
from bench.peers.ctranslate2_device import Ctranslate2Translator
from bench.peers.torch_sides import TorchEncoder, TorchGenerator, TorchTranslator
from bench.peers.torch_static import MODES
from bench.rounds import Spread, compare_tokens, ratio, time_in_turn
from bench.side import NAME as OURS
from bench.side import Threads
from model.transformer import Transformer

CTRANSLATE2 = "ctranslate2"
PEERS = (*MODES, CTRANSLATE2)

Write = Callable[[int], Tokens]
"""So many new tokens of every row of a case."""

Embed = Callable[[], NDArray[np.float32]]
"""The vectors of a case's texts."""

SideT = TypeVar("SideT")


def measure_translate(run: Run) -> None:
    """Every batch and beam: fp16 before fp32 and greedy before beams, so that what runs out of time matters least."""
    scale = run.scale
    num_rows = max(scale.batch_sizes) * max(scale.beam_sizes)
    for precision, model in _cases(run, run.chosen(scale.translate)):
        with ExitStack() as stack:
            runs = Steps()
            observe = runs.observer(run.device, cuda_graphs=run.cuda_graphs)
            decoder = open_decoder(model.bundle, precision, run.device, num_rows, observe)
            stack.callback(decoder.close)
            peer = model.torch_model(precision, run.device)
            for beam in scale.beam_sizes:
                for batch in scale.batch_sizes:
                    ids = model.random_ids(batch, scale.source_tokens)
                    factories: dict[str, Callable[[], Write]] = {
                        mode: partial(TorchTranslator, peer, ids, beam, scale.target_tokens, mode) for mode in MODES
                    }
                    if run.device == "cuda" or precision == "fp32":  # its processor side has no float16
                        folder = model.bundle.with_name("ctranslate2")
                        factories[CTRANSLATE2] = partial(
                            Ctranslate2Translator, model.checkpoint.model, folder, precision, ids, beam, run.device
                        )
                    work = step_work(peer, precision, batch * beam, scale.target_tokens / 2, batch, scale.source_tokens)
                    case = {"model": model.name, "precision": precision, "beam": beam, "batch": batch}
                    ours = partial(write, decoder, _rows(ids), beam)
                    _measure_steps(run, case, ours, factories, scale.target_tokens, work, runs)


def measure_generate(run: Run) -> None:
    """Every number of streams, of prompts of one length."""
    scale = run.scale
    for precision, model in _cases(run, run.chosen(scale.generate)):
        with ExitStack() as stack:
            runs = Steps()
            observe = runs.observer(run.device, cuda_graphs=run.cuda_graphs)
            generator = open_decoder(model.bundle, precision, run.device, max(scale.num_streams), observe)
            stack.callback(generator.close)
            peer = model.torch_model(precision, run.device)
            for batch in scale.num_streams:
                ids = model.random_ids(batch, scale.prompt_tokens)
                factories: dict[str, Callable[[], Write]] = {
                    mode: partial(TorchGenerator, peer, ids, scale.new_tokens, mode) for mode in MODES
                }
                work = step_work(peer, precision, batch, scale.prompt_tokens + scale.new_tokens / 2)
                case = {"model": model.name, "precision": precision, "batch": batch}
                ours = partial(write, generator, _rows(ids), 1)
                _measure_steps(run, case, ours, factories, scale.new_tokens, work, runs)


def measure_embed(run: Run) -> None:
    """Every batch, of texts of one length; a step is a batch."""
    scale = run.scale
    for precision, model in _cases(run, run.chosen(scale.embed)):
        with ExitStack() as stack:
            embedder = EngineEncoder(model.bundle, precision, Threads(1, 1), device=run.device)
            stack.callback(embedder.close)
            peer = model.torch_model(precision, run.device)
            for batch in scale.batch_sizes:
                case = {"model": model.name, "precision": precision, "batch": batch}
                _measure_batch(run, case, embedder, model, peer)


def _cases(run: Run, models: Sequence[PreparedModel]) -> list[tuple[str, PreparedModel]]:
    return [(precision, model) for precision in run.precisions for model in models]


def _rows(ids: NDArray[np.int64]) -> list[TokenIds]:
    return [tuple(row) for row in ids.tolist()]


def _measure_steps(
    run: Run,
    case: dict[str, Any],
    ours: Write,
    factories: Mapping[str, Callable[[], Write]],
    num_tokens: int,
    work: Work,
    runs: Steps,
) -> None:
    """Whole outputs give tokens a second; what they take beyond outputs of one token gives a step's milliseconds."""
    with _sides(run, case, ours, factories) as sides:
        if not sides:
            return
        outputs = {name: side(num_tokens) for name, side in sides.items()}
        for side in sides.values():
            side(1)
        whole = time_in_turn({name: partial(side, num_tokens) for name, side in sides.items()}, run.rounds)
        first = time_in_turn({name: partial(side, 1) for name, side in sides.items()}, run.rounds)
        steps = {name: (whole[name].median - first[name].median) / (num_tokens - 1) for name in sides}
        row = case | _compared(run, work, steps, whole, num_tokens * case["batch"])
        if "eager" in outputs:
            row["equal"] = compare_tokens(outputs[OURS], outputs["eager"]).equal_tokens
        if CTRANSLATE2 in outputs:  # its outputs say whether its cuBLAS computes rightly
            row["equal_ctranslate2"] = compare_tokens(outputs[OURS], outputs[CTRANSLATE2]).equal_tokens
        row["steps_so_far"] = dict(runs.counts)
        run.record.add(row)


def _measure_batch(
    run: Run, case: dict[str, Any], embedder: EngineEncoder, model: PreparedModel, peer: Transformer
) -> None:
    num_tokens = run.scale.text_tokens
    ids = model.random_ids(case["batch"], num_tokens)
    factories: dict[str, Callable[[], Embed]] = {mode: partial(TorchEncoder, peer, ids, mode) for mode in MODES}
    ours: Embed = partial(embedder.run_ids, _rows(ids))
    with _sides(run, case, ours, factories) as sides:
        if not sides:
            return
        outputs = {name: side() for name, side in sides.items()}
        times = time_in_turn(sides, run.rounds)
        work = encoder_work(peer, case["precision"], case["batch"], num_tokens)
        medians = {name: spread.median for name, spread in times.items()}
        row = case | _compared(run, work, medians, times, num_tokens * case["batch"])
        if "eager" in outputs:
            left, right = outputs[OURS].astype(np.float64), outputs["eager"].astype(np.float64)
            norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
            row["equal"] = float(((left * right).sum(1) / norms).min())
        run.record.add(row)


@contextmanager
def _sides(
    run: Run, case: Mapping[str, Any], ours: SideT, factories: Mapping[str, Callable[[], SideT]]
) -> Iterator[dict[str, SideT]]:
    """All sides of a case, ready; none when no time is left. A peer that cannot be made is named and left out."""
    name = ", ".join(f"{key} {value}" for key, value in case.items())
    sides: dict[str, SideT] = {}
    if run.record.is_late:
        run.record.leave_out(name, "no time was left")
    else:
        sides[OURS] = ours
        for side, factory in factories.items():
            try:
                sides[side] = factory()
            except RuntimeError as error:  # no memory, nothing that can be compiled, or no library
                run.record.leave_out(f"{name}, {side}", str(error).strip().split("\n", 1)[0])
    try:
        yield sides
    finally:
        # What was compiled, and the graphs that were captured, hold the memory of this case.
        sides.clear()
        torch._dynamo.reset()  # noqa: SLF001
        gc.collect()
        if run.device == "cuda":
            torch.cuda.empty_cache()


def _compared(
    run: Run, work: Work, steps: Mapping[str, float], whole: Mapping[str, Spread], num_tokens: int
) -> dict[str, Any]:
    """Figures of one case: seconds of a step by side, the times of whole outputs by side, and what these hold."""
    floor = run.ceilings.floor(work.num_bytes, work.operations, work.precision)
    row: dict[str, Any] = {
        "tokens_per_second": num_tokens / whole[OURS].median,
        "milliseconds": _milliseconds(steps[OURS]),
        "floor_milliseconds": 1000 * floor,
        "floor_share": floor / steps[OURS] if steps[OURS] > 0 else None,
    }
    for peer in PEERS:
        if peer in steps:
            row[f"{peer}_milliseconds"] = _milliseconds(steps[peer])
            row[f"{peer}_tokens_per_second"] = num_tokens / whole[peer].median
            row[f"times_{peer}"] = ratio(whole[OURS], whole[peer])
    return row


def _milliseconds(seconds: float) -> float | None:
    """None where the difference of two times was lost in what else the machine did."""
    return 1000 * seconds if seconds > 0 else None
