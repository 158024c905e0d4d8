"""What `python -m bench generate` prints: tables in Markdown, so that they can be kept as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.arrivals import percentile
from bench.generate_arrivals import GenerateLoad
from bench.generate_batches import PEERS, Agreement, CaseResult, Measured


def print_model(model: Mapping[str, Any]) -> None:
    """The shape of the model and of the task in one line."""
    print(
        f"\nmodel {model['family']}: {model['num_layers']} layers, width {model['d_model']}, "
        f"{model['num_heads']} heads, vocabulary {model['vocab_size']}; {model['prompt_tokens']} tokens of prompt, "
        f"{model['new_tokens']} new tokens",
        flush=True,
    )


def print_agreements(agreements: Sequence[Agreement]) -> None:
    """How much of each side's output is the reference's."""
    for found in agreements:
        print(
            f"{found.side} {found.precision}: {found.equal_tokens:.1%} of tokens and {found.equal_outputs:.1%} of "
            f"texts are those of the reference; {found.different_tokens:.0%} of a text's tokens differ from each other",
            flush=True,
        )


def print_case_header() -> None:
    """The first lines of the table of all cases."""
    print(
        "\n| streams | side | precision | threads | tokens/s (min-max) | first token p50, p99 ms | gap p50, p99 ms "
        "| times as fast as |"
    )
    print("|---" * 8 + "|", flush=True)


def print_case(result: CaseResult) -> None:
    """All sides with so many streams."""
    for side in result.sides:
        ratios = {} if side.side in PEERS else result.ratios(side)
        print(_row(result.num_streams, side, ratios), flush=True)


def _row(num_streams: int, side: Measured, ratios: Mapping[str, float]) -> str:
    slowest, fastest = side.num_tokens / side.spread.slowest, side.num_tokens / side.spread.fastest
    return (
        f"| {num_streams} | {side.side} | {side.precision} | {side.setting} "
        f"| {side.tokens_per_second:.1f} ({slowest:.1f}-{fastest:.1f}) "
        f"| {both(side.first_tokens)} | {both(side.gaps)} "
        f"| {', '.join(f'{name} {value:.2f}' for name, value in ratios.items())} |"
    )


def print_load_header() -> None:
    """The first lines of the table of all loads."""
    print(
        "\n| load | side | precision | threads | requests/s | tokens/s | first token p50, p99 ms | gap p50, p99 ms "
        "| whole answer p50, p99 ms |"
    )
    print("|---" * 9 + "|", flush=True)


def print_load(load: GenerateLoad) -> None:
    """One side under one load."""
    print(
        f"| {load.share:.0%}, {load.rate:.2f}/s | {load.side} | {load.precision} | {load.setting} "
        f"| {len(load.latencies) / load.seconds:.2f} | {load.num_tokens / load.seconds:.1f} "
        f"| {both(load.first_tokens)} | {both(load.gaps)} | {both(load.latencies)} |",
        flush=True,
    )


def both(seconds: Sequence[float]) -> str:
    """The median and the 99th percentile in milliseconds."""
    return ", ".join(f"{1000 * percentile(seconds, share):.1f}" for share in (50, 99))
