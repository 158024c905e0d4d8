"""What `python -m bench embed` prints: tables in Markdown, so that they can be kept as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.embed_http import LoadResult
from bench.embed_texts import SideResult
from bench.rounds import ratio

_PEER = "ctranslate2"
_RIVAL = "infinity (optimum)"


def print_texts(model: Mapping[str, Any]) -> None:
    """The model and the texts in one line."""
    print(
        f"model {model['name']}; {model['texts']} texts of {model['tokens'] / model['texts']:.1f} tokens on average, "
        f"the longest of {model['longest']}",
        flush=True,
    )


def print_sides(sides: Sequence[SideResult]) -> None:
    """All texts at once: speed, how near to float32, and how many times as fast as CTranslate2 in int8 and in fp32."""
    peers = {side.precision: side for side in sides if side.name == _PEER}
    print("\n| side | precision | setting | texts/s (min-max) | tokens/s | smallest cosine | mean cosine ", end="")
    print("".join(f"| x CTranslate2 {precision} " for precision in peers) + "|")
    print("|---" * (7 + len(peers)) + "|")
    for side in sides:
        slowest, fastest = side.num_texts / side.spread.slowest, side.num_texts / side.spread.fastest
        ratios = "".join(f" | {ratio(side.spread, peer.spread):.2f}" for peer in peers.values())
        print(
            f"| {side.name} | {side.precision} | {side.setting} "
            f"| {side.texts_per_second:.0f} ({slowest:.0f}-{fastest:.0f}) "
            f"| {side.num_tokens / side.spread.median:.0f} | {side.smallest_cosine:.5f} "
            f"| {side.mean_cosine:.5f}{ratios} |",
            flush=True,
        )


def print_loads(loads: Sequence[LoadResult]) -> None:
    """Every side under every load, with the share of the engine's speed that is kept and the ratio to infinity."""
    rivals = {load.load: load.texts_per_second for load in loads if load.side == _RIVAL}
    print("\n| clients x texts | side | precision | texts/s | p50 ms | p99 ms | of the engine | x infinity |")
    print("|---" * 8 + "|")
    for load in loads:
        kept = "" if load.kept is None else f"{load.kept:.0%}"
        times = f"{load.texts_per_second / rivals[load.load]:.2f}" if load.load in rivals else ""
        print(
            f"| {load.load} | {load.side} | {load.precision} | {load.texts_per_second:.0f} "
            f"| {1000 * load.latency(50):.1f} | {1000 * load.latency(99):.1f} | {kept} | {times} |",
            flush=True,
        )
