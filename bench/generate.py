"""`python -m bench generate`: our generation engine beside others, with the same weights, in one run."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import generate_report as report
from bench.decoding import Threads, thread_choices
from bench.generate_arrivals import LOADS, BatchAtATime, GenerateLoad, Server, capacity, run_load
from bench.generate_batches import STREAMS, Agreement, CaseResult, compare_outputs, run_cases
from bench.generate_models import (
    GENAI_PRECISIONS,
    OUR_PRECISIONS,
    SHAPES,
    PreparedDecoder,
    Shape,
    build_genai,
    prepare_decoder,
)
from bench.generation import EngineGenerator, Generator, Prompt, random_prompts
from bench.models import CACHE, PRECISIONS
from bench.peers.ctranslate2_generator import Ctranslate2Generator
from bench.peers.genai_generator import GenaiGenerator
from bench.peers.transformers_generator import CACHES, TransformersGenerator
from bench.report import begin, print_left_out

GENERATE_PARTS = (*SHAPES, "arrivals")

_PROMPT_TOKENS, _NEW_TOKENS = 32, 64
_COMPARED_PROMPTS = 4
_STREAMS = {"gpt2": STREAMS, "llama": (1, 8)}
_PRECISIONS = {"gpt2": PRECISIONS, "llama": OUR_PRECISIONS}
"""What is measured unless something else is asked for: int4 where onnxruntime-genai has it too."""
_TIMED_REFERENCE = "gpt2"
"""The model on which transformers is measured; on the other one it only tells what is right."""

_MIXED_PROMPTS, _MIXED_NEW_TOKENS = (8, 128), (8, 96)


@dataclass(frozen=True)
class GenerateOptions:
    """What to measure; see `python -m bench generate --help`."""

    precisions: Sequence[str] | None = None
    """None: with GPT-2 what all sides have, with Llama our int4 too."""
    parts: Sequence[str] = GENERATE_PARTS
    streams: Sequence[int] | None = None
    """None: all of STREAMS with GPT-2, the smaller ones with Llama, so that a run stays short."""
    num_threads: int = 2
    rounds: int = 3
    new_tokens: int = _NEW_TOKENS
    num_arrivals: int = 64
    loads: Sequence[float] = LOADS
    shapes: Mapping[str, Shape] = field(default_factory=lambda: {family: Shape(family) for family in SHAPES})
    cache: Path = CACHE


@dataclass
class GenerateResults:
    """All that was measured, as the JSON file holds it."""

    machine: dict[str, Any]
    seconds: float = 0.0
    """All of it, with models that were made."""
    models: list[dict[str, Any]] = field(default_factory=list)
    agreements: list[tuple[str, Agreement]] = field(default_factory=list)
    cases: list[CaseResult] = field(default_factory=list)
    loads: list[GenerateLoad] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "seconds": round(self.seconds, 1),
            "models": self.models,
            "agreements": [{"model": model, **found.to_dict()} for model, found in self.agreements],
            "batches": [case.to_dict() for case in self.cases],
            "arrivals": [load.to_dict() for load in self.loads],
            "left_out": self.left_out,
        }


def run_generate(options: GenerateOptions) -> GenerateResults:
    """Measure everything that `options` ask for, and print it."""
    start = time.perf_counter()
    results = GenerateResults(begin(options.num_threads))
    for family in SHAPES:
        if family in options.parts:
            _run_model(prepare_decoder(options.shapes[family], options.cache), options, results)
    if "arrivals" in options.parts:
        _run_arrivals(prepare_decoder(options.shapes[SHAPES[0]], options.cache), options, results)
    print_left_out(results.left_out)
    results.seconds = time.perf_counter() - start
    print(f"\nall of it took {results.seconds:.0f} s")
    return results


def _run_model(prepared: PreparedDecoder, options: GenerateOptions, results: GenerateResults) -> None:
    shape, lengths = prepared.shape, (_PROMPT_TOKENS, _PROMPT_TOKENS)
    streams = options.streams or _STREAMS[prepared.name]
    prompts = random_prompts(max(*streams, _COMPARED_PROMPTS), shape.vocab_size, lengths, (options.new_tokens,) * 2)
    model = {**vars(shape), "prompt_tokens": _PROMPT_TOKENS, "new_tokens": options.new_tokens}
    results.models.append(model)
    report.print_model(model)
    with ExitStack() as stack:
        sides = []
        for settings in _sides(prepared, options, results.left_out):
            for side in settings:
                stack.callback(side.close)
            sides.append(settings)
        found = compare_sides(sides, prompts[:_COMPARED_PROMPTS])
        report.print_agreements(found)
        results.agreements += [(prepared.name, agreement) for agreement in found]
        report.print_case_header()
        _freeze()
        timed = sides if prepared.name == _TIMED_REFERENCE else sides[1:]
        results.cases += run_cases(prepared.name, timed, prompts, options.rounds, streams, report.print_case)


def _freeze() -> None:
    """Keep the collector off what is loaded by now, as the server does: with PyTorch in it, that takes 50 ms a time."""
    gc.collect()
    gc.freeze()


def _run_arrivals(prepared: PreparedDecoder, options: GenerateOptions, results: GenerateResults) -> None:
    """All sides in the last precision that all have, under one load after the other.

    Ours runs as the server has it, in one loop of all threads, and the peer with a worker for each, its best.
    """
    shared = [name for name in options.precisions or PRECISIONS if name in PRECISIONS]
    if not shared:
        results.left_out.append(f"arrivals in {', '.join(options.precisions or ())}: CTranslate2 has none of these")
        return
    threads, precision, name = Threads(options.num_threads, 1), shared[-1], prepared.name
    prompts = random_prompts(options.num_arrivals, prepared.shape.vocab_size, _MIXED_PROMPTS, _MIXED_NEW_TOKENS, seed=2)
    with ExitStack() as stack:
        ours = EngineGenerator(prepared.bundle, precision, Threads(1, options.num_threads))
        stack.callback(ours.close)
        peer = Ctranslate2Generator(prepared.ctranslate2, precision, threads)
        stack.callback(peer.close)
        gathered = [
            BatchAtATime("polyhead batch at a time", ours, ours.single_loops()),
            BatchAtATime("ctranslate2 gathered", peer, peer.single_workers()),
        ]
        for gatherer in gathered:
            stack.callback(gatherer.close)
        most = capacity(ours, prompts)
        peer.generate(prompts[: options.num_threads])  # the first run allocates
        servers: list[Server] = [ours, *gathered]
        _freeze()
        report.print_load_header()
        for share in options.loads:
            for server in servers:
                results.loads.append(run_load(name, server, prompts, share, share * most))
                report.print_load(results.loads[-1])


def compare_sides(sides: Sequence[Sequence[Generator]], prompts: Sequence[Prompt]) -> list[Agreement]:
    """Each side but the first one beside it; all settings of one compute the same thing, so one stands for it."""
    reference = sides[0][0].generate(prompts)
    return [compare_outputs(reference, settings[0], prompts) for settings in sides[1:]]


def _sides(prepared: PreparedDecoder, options: GenerateOptions, left_out: list[str]) -> Iterator[Sequence[Generator]]:
    """Each side in all the settings that are to be tried; the first is float32 as the model's makers compute it."""
    threads = thread_choices(options.num_threads)
    yield [TransformersGenerator(prepared.folder, options.num_threads, cache) for cache in CACHES]
    if prepared.name == "llama":
        yield from _genai_sides(prepared, options.num_threads, left_out)
    precisions = options.precisions or _PRECISIONS[prepared.name]
    for precision in precisions:
        if precision in PRECISIONS:
            yield [Ctranslate2Generator(prepared.ctranslate2, precision, choice) for choice in threads]
    for precision in precisions:
        yield [EngineGenerator(prepared.bundle, precision, choice) for choice in threads]


def _genai_sides(prepared: PreparedDecoder, num_threads: int, left_out: list[str]) -> Iterator[Sequence[Generator]]:
    for precision in GENAI_PRECISIONS:
        folder = build_genai(prepared, precision)
        if folder is None:
            left_out.append(
                f"onnxruntime-genai {precision}: pip install --no-deps onnxruntime-genai to compare with it"
            )
        else:
            yield [GenaiGenerator(folder, precision, num_threads)]
