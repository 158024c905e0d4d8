"""`python -m bench.embed_memory BUNDLE`: does memory stay bounded when requests of every length come for hours?

Requests of random lengths and in random numbers go through the embedding engine, so that nearly every batch has a shape
of its own, and the resident memory of the process is read as they pass. The arena of a runtime that ratchets shows as
a figure that still grows in the second half.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.ours import EngineEncoder
from bench.side import Threads
from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.encode.embedding_engine import EmbeddingEngine

_TYPICAL_TOKENS, _SPREAD = 24, 0.8
"""Lengths are log-normal about 24 tokens, a few percent of them beyond a hundred: sentences mixed with paragraphs."""
_TOKENS_SHARE = 0.1
"""Share of requests that want a vector of each token."""
_MOST_AT_ONCE = 64
_NUM_READINGS = 20
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Reading:
    """Resident memory in MiB after so many requests, and how many batches they made."""

    num_requests: int
    num_batches: int
    resident_mib: float


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def random_length(chance: random.Random, longest: int) -> int:
    """A number of tokens from 1 to `longest`."""
    return max(1, min(longest, round(chance.lognormvariate(0, _SPREAD) * _TYPICAL_TOKENS)))


def measure(engine: EmbeddingEngine, num_requests: int, seed: int = 0) -> list[Reading]:
    """Send `num_requests` requests in groups of random size, one group after another."""
    chance = random.Random(seed)
    backend = engine.backend
    readings = [Reading(0, 0, resident_bytes() / _MEBIBYTE)]
    num_sent = 0
    for part in range(1, _NUM_READINGS + 1):
        while num_sent < num_requests * part // _NUM_READINGS:
            group: list[Future[EmbeddingResult]] = []
            for _ in range(min(chance.randint(1, _MOST_AT_ONCE), num_requests - num_sent)):
                length = random_length(chance, backend.max_input_tokens)
                input_ids = tuple(chance.randrange(backend.vocab_size) for _ in range(length))
                group.append(engine.submit(EmbeddingRequest(input_ids, chance.random() < _TOKENS_SHARE)))
            for future in group:
                future.result()
            num_sent += len(group)
        readings.append(Reading(num_sent, engine.stats().steps, resident_bytes() / _MEBIBYTE))
        print(f"{num_sent:8,} requests  {readings[-1].num_batches:8,} batches  {readings[-1].resident_mib:8.1f} MiB")
    return readings


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.embed_memory", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("bundle", type=Path, help="folder of an embedding bundle")
    parser.add_argument("--precision", default="fp32", help="precision to run (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=20_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--loops", type=int, default=2, metavar="N", help="batches at a time (default: %(default)s)")
    parser.add_argument(
        "--batch-tokens", type=int, default=0, metavar="N", help="padded tokens of a batch (default: the server's)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every reading to FILE")
    flags = parser.parse_args(arguments)
    side = EngineEncoder(flags.bundle, flags.precision, Threads(flags.loops, 1), batch_tokens=flags.batch_tokens)
    try:
        readings = measure(side.engine, flags.requests)
    finally:
        side.close()
    half = readings[len(readings) // 2].resident_mib
    print(f"second half: {readings[-1].resident_mib - half:+.1f} MiB")
    if flags.json:
        flags.json.write_text(json.dumps([asdict(reading) for reading in readings], indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
