"""`python -m bench embed`: our embedding engine and server beside others, with the weights of one model, in one run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import plot
from bench.embed_models import PreparedEncoder, onnx_folder, prepare_encoder, varied_texts
from bench.loads import ENGINE, Load, Server, in_process, measure_loads
from bench.models import PRECISIONS, ROOT
from bench.ours import EngineEncoder, unit
from bench.peers.ctranslate2 import BATCH_TOKENS, NAME, Ctranslate2Encoder, use_best_kernels
from bench.peers.libraries import BATCH_SIZES, SentenceTransformersEncoder
from bench.report import KEPT, RATIOS, SIDE, TOKENS, Column, Record, Table, begin, latency, speed
from bench.rounds import compared, fastest, run_in_turn
from bench.servers import embed_body, free_port, http_client, our_server, running
from bench.side import BenchError, Encoder, Threads, Vectors, thread_choices

EMBED_PARTS = ("texts", "http")

WINDOWS = (256, 8192)
"""Texts that are tokenized at a time, while earlier ones are computed; that many are sorted by length."""

_TRIAL_TEXTS = 256
"""What the settings of a side are tried on, before the best of them is measured on all."""

_LEAST_COSINE = 0.9999
"""Of a float32 side to the first one; less means that it does not compute the same thing."""

_FAST_BF16 = {"avx512_bf16", "amx_bf16"}
_LOADS = (Load(1, 1), Load(8, 1), Load(32, 1), Load(128, 1), Load(4, 32))
_INFINITY = "infinity (optimum)"

TABLES = {
    "texts": Table(
        (
            *(*SIDE, speed("texts", "texts/s"), TOKENS, Column("smallest_cosine", "smallest cosine", ".5f")),
            *(Column("mean_cosine", "mean cosine", ".5f"), RATIOS),
        )
    ),
    "http": Table(
        (
            *(Column("load", "clients x texts"), *SIDE, Column("texts_per_second", "texts/s", ".0f")),
            *(latency("latency", "latency"), KEPT, RATIOS),
        )
    ),
}

CHARTS = {
    "texts": plot.Chart(
        "benchmark-embed.png",
        (plot.speed("texts", "texts/s, and the smallest cosine", "smallest_cosine"),),
        "precision",
    ),
    "http": plot.Chart(
        "benchmark-embed-http.png",
        (plot.Value("texts_per_second", "texts/s"), plot.latency("latency", "answered")),
        "load",
    ),
}


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


def run_embed(options: EmbedOptions) -> dict[str, Any]:
    """Measure everything that `options` ask for, and print it."""
    machine = begin(options.num_threads, use_best_kernels)
    prepared = prepare_encoder(options.folder)
    texts = varied_texts(options.num_texts)
    lengths = [len(encoding.ids) for encoding in prepared.checkpoint.tokenizer.encodings(texts)]
    num_tokens = sum(min(length, prepared.max_input_tokens) for length in lengths)
    print(
        f"model {prepared.name}; {len(texts)} texts of {num_tokens / len(texts):.1f} tokens on average, the longest of "
        f"{max(lengths)}"
    )
    model = {"name": prepared.name, "texts": len(texts), "tokens": num_tokens, "longest": max(lengths)}
    record = Record({"machine": machine, "model": model}, TABLES)
    if "texts" in options.parts:
        _texts(prepared, texts, num_tokens, options, record)
    if "http" in options.parts:
        _http(prepared, texts, options, record)
    return record.to_dict()


def _texts(
    prepared: PreparedEncoder, texts: Sequence[str], num_tokens: int, options: EmbedOptions, record: Record
) -> None:
    """All texts at once: speed, and how near to float32."""
    with ExitStack() as stack:
        sides: list[Encoder] = []
        for settings in _settings(prepared, options.num_threads, record):
            side = fastest((make() for make in settings), texts[:_TRIAL_TEXTS], closes=True)
            stack.callback(side.close)
            sides.append(side)
        cosines = _compare(sides, texts)
        timed = run_in_turn([[side] for side in sides], texts, options.rounds)
    record.begin("texts")
    for one, row, found in zip(timed, compared(timed, "texts", len(texts), against=NAME), cosines, strict=True):
        row["tokens_per_second"] = round(num_tokens / one.spread.median, 1)
        record.add(
            row | {"smallest_cosine": round(float(found.min()), 6), "mean_cosine": round(float(found.mean()), 6)}
        )


def _compare(sides: Sequence[Encoder], texts: Sequence[str]) -> list[Vectors]:
    """The cosine of each text to the first side's, for every side; BenchError where float32 is not the same."""
    vectors = [unit(side.prepare(texts)()) for side in sides]  # rounded to bf16, a vector has not quite length one
    cosines = [(vectors[0] * found).sum(axis=1) for found in vectors]
    for side, found in zip(sides, cosines, strict=True):
        if side.precision == "fp32" and found.min() < _LEAST_COSINE:
            raise BenchError(
                f"the vectors of {side.name} have a cosine of only {found.min():.4f} to those of {sides[0].name}, "
                "so they do not compute the same thing and their speeds cannot be compared"
            )
    return cosines


def _settings(prepared: PreparedEncoder, num_threads: int, record: Record) -> Iterator[list[Callable[[], Encoder]]]:
    """Each side in all the settings that are to be tried; the first is float32 as its makers compute it."""
    make = SentenceTransformersEncoder
    yield [partial(make, prepared, "fp32", size, num_threads) for size in BATCH_SIZES]
    if _FAST_BF16 & set(record.described["machine"]["cpu_flags"]):
        yield [partial(make, prepared, "bf16", size, num_threads) for size in BATCH_SIZES]
    else:
        record.leave_out("sentence-transformers torch bf16", "this processor has no instructions for it")
    if importlib.util.find_spec("optimum") is None:
        record.leave_out("sentence-transformers onnx", "Optimum is not installed beside it")
    else:
        yield [partial(make, prepared, "fp32", size, num_threads, "onnx") for size in BATCH_SIZES]
    for precision in PRECISIONS:
        yield [
            partial(Ctranslate2Encoder, prepared, precision, threads, tokens, window)
            for threads in thread_choices(num_threads)
            for tokens in BATCH_TOKENS
            for window in WINDOWS
        ]
    for precision in PRECISIONS:
        yield [
            partial(EngineEncoder, prepared.bundle, precision, Threads(num_threads, 1), window) for window in WINDOWS
        ]


def _http(prepared: PreparedEncoder, texts: Sequence[str], options: EmbedOptions, record: Record) -> None:
    """Every server under every load, and our engine without HTTP."""
    threads = Threads(options.num_threads, 1)
    with ExitStack() as stack:
        servers: list[Server[str]] = []
        for precision in PRECISIONS:
            engine = EngineEncoder(prepared.bundle, precision, threads)
            stack.callback(engine.close)
            ours = our_server(prepared.bundle, precision, threads, "/embed", embed_body)
            servers += [in_process(engine, ENGINE), stack.enter_context(ours)]
        servers.append(stack.enter_context(_hand_written_server(prepared, options.num_threads)))
        if options.infinity is None:
            record.leave_out("infinity", "no --infinity ENVIRONMENT was given")
        else:
            servers.append(stack.enter_context(_infinity_server(prepared, options.infinity)))
        rounds = min(3, options.rounds)
        record.begin("http")
        measure_loads(servers, texts, _LOADS, record.add, rounds, options.load_seconds, against=_INFINITY)


@contextmanager
def _hand_written_server(prepared: PreparedEncoder, num_threads: int) -> Iterator[Server[str]]:
    """FastAPI with sentence-transformers in it."""
    port = free_port()
    command = [sys.executable, "-m", "bench.peers.embed_app", str(prepared.folder), str(port), str(num_threads)]
    url = f"http://127.0.0.1:{port}"
    with running(command, url, ROOT):
        connect = http_client(url, "/embed", embed_body)
        yield Server("FastAPI + sentence-transformers", "fp32", f"1x{num_threads}", connect)


@contextmanager
def _infinity_server(prepared: PreparedEncoder, environment: Path) -> Iterator[Server[str]]:
    """The server of infinity, with its optimum engine, from the virtual environment that it is installed in."""
    folder, port = onnx_folder(prepared, environment), free_port()
    # It looks for the ONNX file from where it stands, and Optimum from the model's folder: here both are the same.
    command = [str(environment.resolve() / "bin" / "infinity_emb"), "v2", "--model-id", ".", "--engine", "optimum"]
    command += ["--device", "cpu", "--served-model-name", "model", "--no-model-warmup", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--log-level", "error"]
    url = f"http://127.0.0.1:{port}"
    with running(command, url, folder):
        connect = http_client(url, "/embeddings", lambda texts: {"model": "model", "input": list(texts)})
        yield Server(_INFINITY, "fp32", "its own", connect)
