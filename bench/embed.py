"""`python -m bench embed`: our embedding engine and server beside others, with the weights of one model, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import embed_report as report
from bench.embed_http import LoadResult, measure_loads
from bench.embed_models import prepare_encoder, varied_texts
from bench.embed_texts import SideResult, measure_texts
from bench.report import begin, print_left_out

EMBED_PARTS = ("texts", "http")


@dataclass(frozen=True)
class EmbedOptions:
    """What to measure; see `python -m bench embed --help`."""

    folder: Path | None = None
    infinity: Path | None = None
    parts: Sequence[str] = EMBED_PARTS
    num_threads: int = 2
    num_texts: int = 2048
    rounds: int = 5
    load_seconds: float = 4.0
    """What a server is asked for under one load in one round; there are as many rounds as for texts, but 3 at most."""


@dataclass
class EmbedResults:
    """All that was measured, as the JSON file holds it."""

    machine: dict[str, Any]
    model: dict[str, Any]
    sides: list[SideResult] = field(default_factory=list)
    loads: list[LoadResult] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "model": self.model,
            "texts": [side.to_dict() for side in self.sides],
            "http": [load.to_dict() for load in self.loads],
            "left_out": self.left_out,
        }


def run_embed(options: EmbedOptions) -> EmbedResults:
    """Measure everything that `options` ask for, and print it."""
    machine = begin(options.num_threads)
    prepared = prepare_encoder(options.folder)
    texts = varied_texts(options.num_texts)
    lengths = [len(encoding.ids) for encoding in prepared.checkpoint.tokenizer.encodings(texts)]
    num_tokens = sum(min(length, prepared.max_input_tokens) for length in lengths)
    model = {"name": prepared.name, "texts": len(texts), "tokens": num_tokens, "longest": max(lengths)}
    report.print_texts(model)
    results = EmbedResults(machine, model)
    threads = options.num_threads
    if "texts" in options.parts:
        results.sides = measure_texts(
            prepared, texts, num_tokens, options.rounds, threads, machine["cpu_flags"], results.left_out
        )
        report.print_sides(results.sides)
    if "http" in options.parts:
        rounds = min(3, options.rounds)
        results.loads = measure_loads(
            prepared, texts, rounds, options.load_seconds, threads, options.infinity, results.left_out
        )
        report.print_loads(results.loads)
    print_left_out(results.left_out)
    return results
