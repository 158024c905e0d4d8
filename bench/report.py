"""What the benchmark prints: tables in Markdown, so that they can be kept as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.arrivals import LoadResult, percentile
from bench.batches import Agreement, CaseResult, Side
from bench.http import HttpResult
from bench.machine import busy_warning, describe_machine
from bench.peers.ctranslate2_decoder import use_best_kernels


def begin(num_threads: int) -> dict[str, Any]:
    """Print the machine, the versions, and whether other work disturbs; returns them, as the JSON file holds them.

    CTranslate2 has its best kernels from here on, which is one of the things to print.
    """
    machine = describe_machine()
    machine["ctranslate2_environment"] = use_best_kernels(machine["cpu_flags"])
    print(f"{machine['cpu']}, {machine['cores']} cores, {' '.join(machine['cpu_flags'])}")
    print(", ".join([f"Python {machine['python']}", *(f"{k} {v}" for k, v in machine["versions"].items())]))
    print(f"CTranslate2 with {machine['ctranslate2_environment']}")
    print(f"{num_threads} threads on each side, load average {' '.join(map(str, machine['load_average']))}")
    if warning := busy_warning(machine["load_average"][0], machine["cores"]):
        print(warning)
    print(flush=True)
    return machine


def print_left_out(left_out: Sequence[str]) -> None:
    """What was not measured, and why."""
    for line in left_out:
        print(f"not measured: {line}")


def print_model(model: Mapping[str, Any]) -> None:
    """The shape of the model and of the task in one line."""
    config = model["config"]
    print(
        f"model {model['name']}: {config['num_encoder_layers']}+{config['num_decoder_layers']} layers, "
        f"width {config['d_model']}, vocabulary {config['vocab_size']}, "
        f"{model['num_parameters'] / 1e6:.1f} M parameters; {model['sources']} sentences of "
        f"{model['source_tokens']:.1f} tokens on average, at most {model['max_new_tokens']} tokens out",
        flush=True,
    )


def print_agreement(agreement: Agreement) -> None:
    """How much of the outputs is the same."""
    print(
        f"{agreement.precision}, beam {agreement.beam_size}: {agreement.equal_sentences:.1%} of "
        f"{agreement.num_sentences} sentences and {agreement.equal_tokens:.1%} of tokens are equal on both sides",
        flush=True,
    )


def print_case_head() -> None:
    """The head of the table of batches."""
    print(
        "\n| precision | beam | batch | polyhead sent/s (min-max) | tok/s | threads "
        "| CTranslate2 sent/s (min-max) | tok/s | threads | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")


def print_case(case: CaseResult) -> None:
    """One row of the table of batches."""
    print(
        f"| {case.precision} | {case.beam_size} | {case.batch_size} | {_side(case.ours)} | {_side(case.theirs)} "
        f"| {case.ratio:.2f} |",
        flush=True,
    )


def _side(side: Side) -> str:
    slowest = side.num_sentences / side.spread.slowest
    fastest = side.num_sentences / side.spread.fastest
    return (
        f"{side.sentences_per_second:.1f} ({slowest:.1f}-{fastest:.1f}) | {side.tokens_per_second:.0f} | {side.threads}"
    )


def print_load_head(precision: str) -> None:
    """The head of the table of arrivals."""
    print(f"\nrequests of mixed lengths one by one, {precision}, greedy\n")
    print("| load | side | threads | requests/s | tokens/s | p50 ms | p99 ms |")
    print("|---|---|---|---|---|---|---|")


def print_load(load: LoadResult) -> None:
    """One row of the table of arrivals."""
    print(
        f"| {load.load} | {load.side} | {load.threads} | {load.requests_per_second:.1f} "
        f"| {load.tokens_per_second:.0f} | {1000 * load.p50:.0f} | {1000 * load.p99:.0f} |",
        flush=True,
    )


def print_http(results: Sequence[HttpResult]) -> None:
    """What HTTP keeps of the engine's speed."""
    print("\n| precision | clients | texts a request | engine sent/s | HTTP sent/s | kept | p50 ms | p99 ms |")
    print("|---|---|---|---|---|---|---|---|")
    for result in results:
        print(
            f"| {result.precision} | {result.num_clients} | {result.texts_per_request} "
            f"| {result.engine_sentences_per_second:.1f} | {result.http_sentences_per_second:.1f} | {result.kept:.0%} "
            f"| {1000 * percentile(result.latencies, 50):.0f} | {1000 * percentile(result.latencies, 99):.0f} |",
            flush=True,
        )
