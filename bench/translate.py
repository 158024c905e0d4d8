"""`python -m bench translate`: our engine beside CTranslate2, with the same weights, on one machine, in one run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from bench import plot
from bench.loads import ENGINE, Load, in_process, measure_loads
from bench.models import CACHE, SENTENCES, Prepared, num_special_tokens, prepare, word
from bench.ours import EngineDecoder
from bench.peers.ctranslate2 import Ctranslate2Decoder, use_best_kernels
from bench.report import AGREEMENT, KEPT, RATIOS, SIDE, TOKENS, Column, Record, Table, begin, latency, speed
from bench.rounds import agreement_row, check_agreement, compare_tokens, compared, run_in_turn
from bench.servers import our_server, translate_body
from bench.side import NAME, Decoder, Gathered, Text, thread_choices
from model.translation_format import OWN_FORMAT, BoundFormat

PARTS = ("batches", "arrivals", "http")
BATCH_SIZES = (1, 8, 32, 64)
BEAM_SIZES = (1, 4)

_SOURCE_LENGTH = 20
_FORCED_LENGTH = 30
_MIXED_LENGTHS = (5, 40)
_LONGEST = 128

_CLIENTS = (8, 32)
_LOAD_FACTORS = (0.7, 1.0, 1.3)
"""Arrival rates, as shares of what the peer reaches in a closed loop of the most clients."""

TABLES = {
    "agreement": AGREEMENT,
    "batches": Table(
        (
            *(Column("beam_size", "beam"), Column("batch_size", "batch"), *SIDE),
            *(speed("sentences", "sentences/s"), TOKENS, RATIOS),
        )
    ),
    "arrivals": Table(
        (
            *(Column("load", "load"), *SIDE, Column("requests_per_second", "requests/s", ".1f"), TOKENS),
            *(latency("latency", "latency"), RATIOS),
        )
    ),
    "http": Table(
        (
            *(Column("load", "clients x texts"), *SIDE, Column("texts_per_second", "sentences/s", ".1f")),
            *(latency("latency", "latency"), KEPT),
        )
    ),
}

CHARTS = {
    "batches": plot.Chart(
        "benchmark-batches.png", (plot.speed("sentences", "sentences/s"),), "batch_size", ("precision", "beam_size")
    ),
    "arrivals": plot.Chart(
        "benchmark-arrivals.png",
        (plot.Value("requests_per_second", "requests/s"), plot.latency("latency", "answered")),
        "load",
        ("precision",),
    ),
}


@dataclass(frozen=True)
class Options:
    """What to measure; see `python -m bench translate --help`."""

    checkpoint: Path | None = None
    precisions: Sequence[str] = ("fp32", "int8")
    parts: Sequence[str] = PARTS
    batch_sizes: Sequence[int] = BATCH_SIZES
    num_threads: int = 2
    rounds: int = 5
    num_arrivals: int = 200
    cache: Path = CACHE


def run(options: Options) -> dict[str, Any]:
    """Measure everything that `options` ask for, and print it as it comes."""
    machine = begin(options.num_threads, use_best_kernels)
    prepared = prepare(options.checkpoint, cache=options.cache)
    texts = _batch_texts(prepared)
    record = Record({"machine": machine, "model": _describe(prepared, texts)}, TABLES)
    measures = {"batches": partial(_batches, prepared, texts), "arrivals": partial(_arrivals, prepared)}
    measures["http"] = partial(_http, prepared)
    for precision, part in product(options.precisions, PARTS):
        if part in options.parts:
            measures[part](precision, options, record)
    return record.to_dict()


def _batches(prepared: Prepared, texts: Sequence[Text], precision: str, options: Options, record: Record) -> None:
    choices = thread_choices(options.num_threads)
    with ExitStack() as stack:
        ours: list[Decoder] = [EngineDecoder(prepared.bundle, precision, threads) for threads in choices]
        theirs: list[Decoder] = [Ctranslate2Decoder(prepared.peer, precision, threads) for threads in choices]
        for side in (*ours, *theirs):
            stack.callback(side.close)
        record.begin("agreement", f"outputs beside CTranslate2's, {precision}")
        for beam_size in BEAM_SIZES:
            chosen = with_beam(texts, beam_size)
            outputs = [[output.token_ids for output in side.prepare(chosen)()] for side in (ours[0], theirs[0])]
            found = compare_tokens(*outputs)
            record.add({**agreement_row(ours[0], found), "beam_size": beam_size})
            check_agreement(ours[0], found)
        record.begin("batches")
        for beam_size, batch_size in product(BEAM_SIZES, options.batch_sizes):
            some = with_beam(texts[: num_sentences(batch_size, len(texts))], beam_size)
            timed = run_in_turn([ours, theirs], some, options.rounds, batch_size)
            for one, row in zip(timed, compared(timed, "sentences", len(some)), strict=True):
                num_tokens = sum(len(output.token_ids) for _, answer in one.answers for output in answer)
                tokens = round(num_tokens / options.rounds / one.spread.median, 1)
                record.add({"beam_size": beam_size, "batch_size": batch_size, **row, "tokens_per_second": tokens})


def with_beam(texts: Sequence[Text], beam_size: int) -> list[Text]:
    """The same texts, searched with a beam of that size."""
    return [Text(text.token_ids, text.max_new_tokens, beam_size) for text in texts]


def num_sentences(batch_size: int, available: int) -> int:
    """How many sentences a case decodes: small batches are slow, so they get fewer, in whole batches."""
    wanted = max(batch_size, 16 if batch_size == 1 else 32)
    return max(batch_size, min(wanted, available) // batch_size * batch_size)


def _arrivals(prepared: Prepared, precision: str, options: Options, record: Record) -> None:
    """Each side under the same loads: ours, the peer with a batcher before it, and the peer called once a request."""
    threads = thread_choices(options.num_threads)[0]
    if not prepared.is_trained:
        prepared = prepare(None, writes_ends=True, cache=options.cache)
    texts = mixed_texts(prepared, options.num_arrivals)
    with ExitStack() as stack:
        ours, peer = (
            EngineDecoder(prepared.bundle, precision, threads),
            Ctranslate2Decoder(prepared.peer, precision, threads),
        )
        gathered: Gathered[Text] = Gathered(f"{peer.name} gathered", peer, peer.run, threads.workers)
        sides: list[Decoder] = [ours, gathered, peer]
        for side in (ours, peer, gathered):
            stack.callback(side.close)
        servers = [in_process(side) for side in sides]
        record.begin("arrivals", f"requests of mixed lengths one by one, {precision}, greedy")
        closed = [Load(clients) for clients in _CLIENTS]
        reached = measure_loads(servers, texts, closed, record.add, against=gathered.name)
        capacity = max(row["requests_per_second"] for row in reached if row["side"] != NAME)
        arriving = [Load(rate=factor * capacity) for factor in _LOAD_FACTORS]
        measure_loads(servers, texts, arriving, record.add, against=gathered.name)


def _http(prepared: Prepared, precision: str, options: Options, record: Record) -> None:
    if prepared.is_trained:
        texts = random.Random(2).choices(SENTENCES.read_text(encoding="utf-8").splitlines(), k=options.num_arrivals)
    else:
        texts = random_strings(prepared, options.num_arrivals)
    threads, limit = thread_choices(options.num_threads)[0], _LONGEST if prepared.is_trained else _FORCED_LENGTH
    with ExitStack() as stack:
        engine = EngineDecoder(prepared.bundle, precision, threads)
        stack.callback(engine.close)
        ids = prepared.checkpoint.tokenizer.encode_batch(texts)
        known = {text: Text(_bound(prepared).source_ids(row), limit) for text, row in zip(texts, ids, strict=True)}
        server = stack.enter_context(
            our_server(prepared.bundle, precision, threads, "/translate", partial(translate_body, max_new_tokens=limit))
        )
        record.begin("http", "the engine, and what HTTP keeps of its speed")
        loads = [Load(max(_CLIENTS), number) for number in (1, 16)]
        measure_loads([in_process(engine, ENGINE, known), server], texts, loads, record.add)


def _batch_texts(prepared: Prepared) -> list[Text]:
    """The sources of the batches. With random weights outputs have a forced length, else their natural one."""
    if prepared.is_trained:
        return _sentences(prepared)
    return random_sources(prepared, max(BATCH_SIZES), (_SOURCE_LENGTH, _SOURCE_LENGTH), _FORCED_LENGTH, seed=1)


def mixed_texts(prepared: Prepared, count: int) -> list[Text]:
    """`count` sources of mixed lengths, in an order of chance."""
    if not prepared.is_trained:
        # Random weights that end by chance go on for long at times.
        return random_sources(prepared, count, _MIXED_LENGTHS, 2 * _FORCED_LENGTH, seed=2)
    return random.Random(2).choices(_sentences(prepared), k=count)


def _sentences(prepared: Prepared) -> list[Text]:
    """Everyday English sentences."""
    rows = prepared.checkpoint.tokenizer.encode_batch(SENTENCES.read_text(encoding="utf-8").splitlines())
    return [Text(_bound(prepared).source_ids(ids), _LONGEST) for ids in rows]


def random_sources(
    prepared: Prepared, count: int, lengths: tuple[int, int], max_new_tokens: int, seed: int
) -> list[Text]:
    """Random words between a language tag and the end token; `lengths` count these two."""
    generator, bound = random.Random(seed), _bound(prepared)
    words = range(num_special_tokens(), prepared.checkpoint.config.vocab_size)
    sizes = (generator.randint(*lengths) - bound.num_source_tokens for _ in range(count))
    return [Text(bound.source_ids(generator.choices(words, k=size)), max_new_tokens) for size in sizes]


def random_strings(prepared: Prepared, count: int) -> list[str]:
    """Texts of made-up words, each of which the random model's tokenizer takes for one token."""
    generator = random.Random(3)
    words = range(num_special_tokens(), prepared.checkpoint.config.vocab_size)
    return [" ".join(map(word, generator.choices(words, k=_SOURCE_LENGTH - 2))) for _ in range(count)]


def _bound(prepared: Prepared) -> BoundFormat:
    """What stands around a source from English into German."""
    tokenizer = prepared.checkpoint.tokenizer
    return OWN_FORMAT.bind("en", "de", tokenizer, tokenizer)


def _describe(prepared: Prepared, texts: Sequence[Text]) -> dict[str, Any]:
    config = prepared.checkpoint.config.to_dict()
    model: dict[str, Any] = {
        "name": prepared.name,
        "config": config,
        "num_parameters": prepared.checkpoint.model.num_parameters(),
        "sources": len(texts),
        "source_tokens": sum(len(text.token_ids) for text in texts) / len(texts),
        "max_new_tokens": texts[0].max_new_tokens,
    }
    print(
        f"model {model['name']}: {config['num_encoder_layers']}+{config['num_decoder_layers']} layers, "
        f"width {config['d_model']}, vocabulary {config['vocab_size']}, "
        f"{model['num_parameters'] / 1e6:.1f} M parameters; {model['sources']} sentences of "
        f"{model['source_tokens']:.1f} tokens on average, at most {model['max_new_tokens']} tokens out",
        flush=True,
    )
    return model
