"""`python -m bench translate`: our engine beside CTranslate2, with the same weights, on one machine, in one run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import report
from bench.arrivals import LoadResult, closed_loop, poisson
from bench.batches import BATCH_SIZES, BEAM_SIZES, Agreement, CaseResult, compare_outputs, run_cases
from bench.decoding import Decoder, Settings, Source, Threads, thread_choices
from bench.http import HttpResult, measure_http
from bench.models import BenchError, Prepared, num_special_tokens, prepare, word
from bench.ours import EngineDecoder
from bench.peers.ctranslate2_decoder import Ctranslate2Decoder, GatheringDecoder
from model.translation_format import OWN_FORMAT, BoundFormat

PARTS = ("batches", "arrivals", "http")

SENTENCES = Path(__file__).parent / "sentences.en.txt"

_SOURCE_LENGTH = 20
_FORCED_LENGTH = 30
_MIXED_LENGTHS = (5, 40)
_LONGEST = 128
_LEAST_AGREEMENT = 0.9
"""Of float32 tokens; rounding may turn a tie, and what follows from it, but no more than that."""

_CLIENTS = (8, 32)
_LOAD_FACTORS = (0.7, 1.0, 1.3)
"""Arrival rates, as shares of what the peer reaches in a closed loop of the most clients."""


@dataclass(frozen=True)
class Options:
    """What to measure; see `python -m bench translate --help`."""

    checkpoint: Path | None = None
    precisions: Sequence[str] = ("fp32", "int8")
    parts: Sequence[str] = PARTS
    batch_sizes: Sequence[int] = BATCH_SIZES
    beam_sizes: Sequence[int] = BEAM_SIZES
    num_threads: int = 2
    rounds: int = 5
    num_arrivals: int = 200


@dataclass
class Results:
    """All that was measured, as the JSON file holds it."""

    machine: dict[str, Any]
    model: dict[str, Any]
    agreements: list[Agreement] = field(default_factory=list)
    cases: list[CaseResult] = field(default_factory=list)
    loads: list[tuple[str, LoadResult]] = field(default_factory=list)
    http: list[HttpResult] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "model": self.model,
            "agreement": [agreement.to_dict() for agreement in self.agreements],
            "batches": [case.to_dict() for case in self.cases],
            "arrivals": [{"precision": precision, **load.to_dict()} for precision, load in self.loads],
            "http": [result.to_dict() for result in self.http],
        }


def run(options: Options) -> Results:
    """Measure everything that `options` ask for, and print it as it comes."""
    machine = report.begin(options.num_threads)
    prepared = prepare(options.checkpoint)
    sources, max_new_tokens = _batch_sources(prepared)
    results = Results(machine, _describe(prepared, sources, max_new_tokens))
    for precision in options.precisions:
        if "batches" in options.parts:
            _run_batches(prepared, precision, sources, max_new_tokens, options, results)
        if "arrivals" in options.parts:
            _run_arrivals(prepared, precision, options, results)
        if "http" in options.parts:
            _run_http(prepared, precision, options, results)
    return results


def _run_batches(
    prepared: Prepared,
    precision: str,
    sources: Sequence[Source],
    max_new_tokens: int,
    options: Options,
    results: Results,
) -> None:
    choices = thread_choices(options.num_threads)
    with _decoders(prepared, precision, choices) as (ours, theirs):
        for beam_size in options.beam_sizes:
            settings = Settings(beam_size, max_new_tokens)
            agreement = compare_outputs(ours[0], theirs[0], precision, sources, settings)
            results.agreements.append(agreement)
            report.print_agreement(agreement)
            if precision == "fp32" and agreement.equal_tokens < _LEAST_AGREEMENT:
                raise BenchError(
                    f"only {agreement.equal_tokens:.1%} of the float32 tokens are the same on both sides, so they do "
                    "not compute the same thing and their speeds cannot be compared; look for the fault in the export "
                    "or in bench/peers/ctranslate2_converter.py"
                )
        report.print_case_head()
        results.cases += run_cases(
            ours,
            theirs,
            precision,
            sources,
            max_new_tokens,
            options.rounds,
            options.batch_sizes,
            options.beam_sizes,
            report.print_case,
        )


@contextmanager
def _decoders(
    prepared: Prepared, precision: str, choices: Sequence[Threads]
) -> Iterator[tuple[list[Decoder], list[Decoder]]]:
    with ExitStack() as stack:
        ours: list[Decoder] = [EngineDecoder(prepared.bundle, precision, threads) for threads in choices]
        for decoder in ours:
            stack.callback(decoder.close)
        theirs: list[Decoder] = [Ctranslate2Decoder(prepared.peer, precision, threads) for threads in choices]
        for decoder in theirs:
            stack.callback(decoder.close)
        yield ours, theirs


def _run_arrivals(prepared: Prepared, precision: str, options: Options, results: Results) -> None:
    """Each side under the same loads: ours, the peer called once a request, and the peer with a batcher before it."""
    threads = thread_choices(options.num_threads)[0]
    if not prepared.is_trained:
        prepared = prepare(None, writes_ends=True)
    sources = mixed_sources(prepared, options.num_arrivals)
    settings = Settings(1, _longest(prepared))
    with ExitStack() as stack:
        sides: list[Decoder] = [
            EngineDecoder(prepared.bundle, precision, threads),
            GatheringDecoder(prepared.peer, precision, threads),
            Ctranslate2Decoder(prepared.peer, precision, threads),
        ]
        for side in sides:
            stack.callback(side.close)
            closed_loop(side, sources[:32], settings, 32)  # warm: caches and arenas grow on first use
        report.print_load_head(precision)

        def note(load: LoadResult) -> LoadResult:
            results.loads.append((precision, load))
            report.print_load(load)
            return load

        reached = [note(closed_loop(side, sources, settings, clients)) for clients in _CLIENTS for side in sides]
        capacity = max(load.requests_per_second for load in reached if load.side != sides[0].name)
        for factor in _LOAD_FACTORS:
            for side in sides:
                note(poisson(side, sources, settings, factor * capacity))


def _run_http(prepared: Prepared, precision: str, options: Options, results: Results) -> None:
    if prepared.is_trained:
        texts = random.Random(2).choices(SENTENCES.read_text(encoding="utf-8").splitlines(), k=options.num_arrivals)
    else:
        texts = random_texts(prepared, options.num_arrivals)
    threads = thread_choices(options.num_threads)[0]
    limit = _LONGEST if prepared.is_trained else _FORCED_LENGTH
    measured = measure_http(prepared.bundle, precision, threads, texts, limit, max(_CLIENTS))
    report.print_http(measured)
    results.http += measured


def _longest(prepared: Prepared) -> int:
    """The longest output of requests of mixed lengths; random weights that end by chance go on for long at times."""
    return _LONGEST if prepared.is_trained else 2 * _FORCED_LENGTH


def _batch_sources(prepared: Prepared) -> tuple[list[Source], int]:
    """The sources of the batches, and the longest output: forced for random weights, natural for a trained model."""
    if prepared.is_trained:
        return text_sources(prepared), _LONGEST
    return random_sources(prepared, max(BATCH_SIZES), (_SOURCE_LENGTH, _SOURCE_LENGTH), seed=1), _FORCED_LENGTH


def mixed_sources(prepared: Prepared, count: int) -> list[Source]:
    """`count` sources of mixed lengths, in an order of chance."""
    if not prepared.is_trained:
        return random_sources(prepared, count, _MIXED_LENGTHS, seed=2)
    texts = text_sources(prepared)
    return random.Random(2).choices(texts, k=count)


def random_sources(prepared: Prepared, count: int, lengths: tuple[int, int], seed: int) -> list[Source]:
    """Random words between a language tag and the end token; `lengths` count these two."""
    generator = random.Random(seed)
    config = prepared.checkpoint.config
    bound = _bound(prepared)
    return [
        bound.source_ids(
            [
                generator.randrange(num_special_tokens(), config.vocab_size)
                for _ in range(generator.randint(*lengths) - bound.num_source_tokens)
            ]
        )
        for _ in range(count)
    ]


def _bound(prepared: Prepared) -> BoundFormat:
    """What stands around a source from English into German."""
    tokenizer = prepared.checkpoint.tokenizer
    return OWN_FORMAT.bind("en", "de", tokenizer, tokenizer)


def random_texts(prepared: Prepared, count: int) -> list[str]:
    """Texts of made-up words, each of which the random model's tokenizer takes for one token."""
    generator = random.Random(3)
    words = range(num_special_tokens(), prepared.checkpoint.config.vocab_size)
    return [" ".join(map(word, generator.choices(words, k=_SOURCE_LENGTH - 2))) for _ in range(count)]


def text_sources(prepared: Prepared) -> list[Source]:
    """Everyday English sentences as the model's token ids."""
    bound = _bound(prepared)
    texts = SENTENCES.read_text(encoding="utf-8").splitlines()
    return [bound.source_ids(ids) for ids in prepared.checkpoint.tokenizer.encode_batch(texts)]


def _describe(prepared: Prepared, sources: Sequence[Source], max_new_tokens: int) -> dict[str, Any]:
    description = {
        "name": prepared.name,
        "config": prepared.checkpoint.config.to_dict(),
        "num_parameters": prepared.checkpoint.model.num_parameters(),
        "sources": len(sources),
        "source_tokens": sum(map(len, sources)) / len(sources),
        "max_new_tokens": max_new_tokens,
    }
    report.print_model(description)
    return description
