"""`python -m bench generate`: our generation engine beside others, with the same weights, in one run."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench import plot
from bench.generate_models import (
    GENAI_PRECISIONS,
    OUR_PRECISIONS,
    SHAPES,
    PreparedDecoder,
    Shape,
    build_genai,
    prepare_decoder,
)
from bench.loads import Load, in_process, measure_loads
from bench.models import CACHE, PRECISIONS
from bench.ours import EngineDecoder
from bench.peers.ctranslate2 import Ctranslate2Generator, use_best_kernels
from bench.peers.libraries import CACHES, GenaiGenerator, TransformersGenerator
from bench.report import AGREEMENT, RATIOS, SIDE, TOKENS, Column, Record, Table, begin, latency, speed
from bench.rounds import agreement_row, check_agreement, compare_tokens, compared, run_in_turn, stream_times
from bench.side import BenchError, Decoder, Gathered, Output, Text, Threads, thread_choices

GENERATE_PARTS = (*SHAPES, "arrivals")
STREAMS = (1, 8, 32)
LOADS = (0.5, 0.8)
"""Rates at which prompts arrive, in shares of what our engine finishes when all of them are there at once."""

_PROMPT_TOKENS, _NEW_TOKENS = 32, 64
_TRIAL_TOKENS = 16
"""New tokens in the trial of a setting: enough to see which is faster at steps, and not only at reading the prompt."""
_COMPARED_PROMPTS = 4
_STREAMS = {"gpt2": STREAMS, "llama": (1, 8)}
_PRECISIONS = {"gpt2": PRECISIONS, "llama": OUR_PRECISIONS}
"""What is measured unless something else is asked for: int4 where onnxruntime-genai has it too."""
_TIMED_REFERENCE = "gpt2"
"""The model on which transformers is measured; on the other one it only tells what is right."""

_MIXED_PROMPTS, _MIXED_NEW_TOKENS = (8, 128), (8, 96)

_TIMES = (latency("first_token", "first token"), latency("gap", "gap"))
TABLES = {
    "agreement": AGREEMENT,
    "batches": Table(
        (Column("model", "model"), Column("streams", "streams"), *SIDE, speed("tokens", "tokens/s"), *_TIMES, RATIOS)
    ),
    "arrivals": Table(
        (
            *(Column("share_of_capacity", "of capacity", ".0%"), Column("load", "load"), *SIDE),
            *(Column("requests_per_second", "requests/s", ".2f"), TOKENS, *_TIMES, latency("latency", "whole answer")),
        )
    ),
}

CHARTS = {
    "batches": plot.Chart("benchmark-generate.png", (plot.speed("tokens", "tokens/s"),), "streams", ("model",)),
    "arrivals": plot.Chart(
        "benchmark-generate-arrivals.png",
        (
            plot.latency("first_token", "first token"),
            plot.latency("gap", "gap between tokens"),
            plot.latency("latency", "whole answer"),
        ),
        "load",
    ),
}


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


def run_generate(options: GenerateOptions) -> dict[str, Any]:
    """Measure everything that `options` ask for, and print it."""
    start = time.perf_counter()
    described: dict[str, Any] = {"machine": begin(options.num_threads, use_best_kernels), "models": []}
    record = Record(described, TABLES)
    for family in SHAPES:
        if family in options.parts:
            _streams(prepare_decoder(options.shapes[family], options.cache), options, record)
    if "arrivals" in options.parts:
        _arrivals(prepare_decoder(options.shapes[SHAPES[0]], options.cache), options, record)
    record.described["seconds"] = round(time.perf_counter() - start, 1)
    print(f"\nall of it took {record.described['seconds']:.0f} s")
    return record.to_dict()


def _streams(prepared: PreparedDecoder, options: GenerateOptions, record: Record) -> None:
    """Streams that begin together: tokens a second, time to the first token, and gaps."""
    shape, new_tokens = prepared.shape, options.new_tokens
    counts = options.streams or _STREAMS[prepared.name]
    lengths = (_PROMPT_TOKENS, _PROMPT_TOKENS)
    prompts = random_prompts(max(*counts, _COMPARED_PROMPTS), shape.vocab_size, lengths, (new_tokens, new_tokens))
    record.described["models"].append(
        {**vars(shape), "prompt_tokens": _PROMPT_TOKENS, "new_tokens": new_tokens},
    )
    heading = (
        f"model {shape.family}: {shape.num_layers} layers, width {shape.d_model}, {shape.num_heads} heads, vocabulary "
        f"{shape.vocab_size}; {_PROMPT_TOKENS} tokens of prompt, {new_tokens} new tokens"
    )
    with ExitStack() as stack:
        sides: list[list[Decoder]] = []
        for settings in _settings(prepared, options, record):
            for side in settings:
                stack.callback(side.close)
            sides.append(settings)
        record.begin("agreement", heading)
        for row in compare_sides(sides, prompts[:_COMPARED_PROMPTS]):
            record.add({"model": prepared.name, **row})
        record.begin("batches", heading)
        _freeze()
        timed_sides = sides if prepared.name == _TIMED_REFERENCE else sides[1:]
        for num_streams in counts:
            some = prompts[:num_streams]
            trial = [Text(prompt.token_ids, min(_TRIAL_TOKENS, prompt.max_new_tokens)) for prompt in some]
            timed = run_in_turn(timed_sides, some, options.rounds, trial=trial)
            for one, row in zip(timed, compared(timed, "tokens", num_streams * new_tokens), strict=True):
                record.add({"model": prepared.name, "streams": num_streams, **row, **stream_times(one.answers)})


def compare_sides(sides: Sequence[Sequence[Decoder]], prompts: Sequence[Text]) -> Iterator[dict[str, Any]]:
    """Each side but the first one beside it; all settings of one compute the same thing, so one stands for it.

    BenchError where float32 does not compute the same thing, or an output is not as long as was asked for.
    """
    reference = [output.token_ids for output in sides[0][0].prepare(prompts)()]
    for side, *_ in sides[1:]:
        outputs = side.prepare(prompts)()
        _check_lengths(side, outputs, prompts)
        found = compare_tokens([output.token_ids for output in outputs], reference)
        check_agreement(side, found)
        yield agreement_row(side, found)


def _check_lengths(side: Decoder, outputs: Sequence[Output], prompts: Sequence[Text]) -> None:
    for output, prompt in zip(outputs, prompts, strict=True):
        if not len(output.token_ids) == len(output.times) == prompt.max_new_tokens:
            raise BenchError(
                f"{side.name} {side.precision} wrote {len(output.token_ids)} tokens, asked for: {prompt.max_new_tokens}"
            )


def _freeze() -> None:
    """Keep the collector off what is loaded by now, as the server does: with PyTorch in it, that takes 50 ms a time."""
    gc.collect()
    gc.freeze()


def _settings(prepared: PreparedDecoder, options: GenerateOptions, record: Record) -> Iterator[list[Decoder]]:
    """Each side in all the settings that are to be tried; the first is float32 as the model's makers compute it."""
    threads = thread_choices(options.num_threads)
    yield [TransformersGenerator(prepared.folder, options.num_threads, cache) for cache in CACHES]
    for precision in GENAI_PRECISIONS if prepared.name == "llama" else ():
        folder = build_genai(prepared, precision)
        if folder is None:
            why = "pip install --no-deps onnxruntime-genai to compare with it"
            record.leave_out(f"onnxruntime-genai {precision}", why)
        else:
            yield [GenaiGenerator(folder, precision, options.num_threads)]
    precisions = options.precisions or _PRECISIONS[prepared.name]
    for precision in precisions:
        if precision in PRECISIONS:
            yield [Ctranslate2Generator(prepared.ctranslate2, precision, choice) for choice in threads]
    for precision in precisions:
        yield [EngineDecoder(prepared.bundle, precision, choice) for choice in threads]


def _arrivals(prepared: PreparedDecoder, options: GenerateOptions, record: Record) -> None:
    """All sides in the last precision that all have, under one load after the other.

    Ours runs as the server has it, in one loop of all threads, and the peer with a worker for each, its best.
    "Batch at a time" is our own engine without continuous batching.
    """
    shared = [name for name in options.precisions or PRECISIONS if name in PRECISIONS]
    if not shared:
        record.leave_out(f"arrivals in {', '.join(options.precisions or ())}", "CTranslate2 has none of these")
        return
    prompts = random_prompts(options.num_arrivals, prepared.shape.vocab_size, _MIXED_PROMPTS, _MIXED_NEW_TOKENS, seed=2)
    with ExitStack() as stack:
        ours = EngineDecoder(prepared.bundle, shared[-1], Threads(1, options.num_threads))
        peer = Ctranslate2Generator(prepared.ctranslate2, shared[-1], Threads(options.num_threads, 1))
        sides: list[Decoder] = [
            ours,
            Gathered(f"{ours.name} batch at a time", ours, ours.run, 1),
            Gathered(f"{peer.name} gathered", peer, peer.run, options.num_threads),
        ]
        for side in (peer, *sides):
            stack.callback(side.close)
        most = capacity(ours, prompts)
        record.begin("arrivals")
        _freeze()
        servers = [in_process(side) for side in sides]
        for share in options.loads:
            known = {"model": prepared.name, "share_of_capacity": share}
            measure_loads(servers, prompts, [Load(rate=share * most)], partial(_add, record, known))


def _add(record: Record, known: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    record.add({**known, **row})


def capacity(side: Decoder, prompts: Sequence[Text]) -> float:
    """Requests a second when all of `prompts` are there at once."""
    job = side.prepare(prompts)
    job()  # tables grow on first use
    start = time.perf_counter()
    job()
    return len(prompts) / (time.perf_counter() - start)


def random_prompts(
    count: int, vocab_size: int, lengths: tuple[int, int], new_tokens: tuple[int, int], seed: int = 1
) -> list[Text]:
    """`count` prompts of random words, with `lengths` tokens and `new_tokens` to come: from the least to the most."""
    chance = random.Random(seed)
    return [
        Text(
            tuple(chance.randrange(1, vocab_size) for _ in range(chance.randint(*lengths))), chance.randint(*new_tokens)
        )
        for _ in range(count)
    ]
