"""Plays the attacks and the fuzzer against a server of ours, and prints what everybody else saw meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.fairness import FairnessResult, fairness_table, measure_fairness
from bench.hold.attacks import Attack, all_attacks
from bench.hold.fuzz import fuzz
from bench.hold.samples import ordinary_requests
from bench.hold.soak import soak
from bench.hold.target import NO_ANSWER, Target, is_fault
from bench.hold.watch import Bystander, Memory, forget_highest, read_memory
from bench.servers import await_health, free_port
from bench.side import BenchError

_FUZZ_AT_A_TIME = 5_000
_NICENESS = 5
_SECONDS_TO_CONNECT = 0.3
_IDLE_SECONDS = 45
"""Until the server has given back what it needs no more."""
_DESCRIPTORS = 8_192
_MIB = 2**20


@dataclass(frozen=True)
class HoldOptions:
    """`num_requests` is how many requests the run has in all; the fuzzer makes what the attacks leave. `only` names
    attacks by a part of their names. With `soak_seconds` ordinary and hostile traffic goes on for so long.
    """

    num_requests: int = 100_000
    seed: int = 0
    only: tuple[str, ...] = ()
    soak_seconds: float = 0.0
    bundles: Path = Path("bundles")


@dataclass(frozen=True)
class Row:
    """One attack: how it was answered, and the longest wait of a bystander, in seconds."""

    name: str
    seconds: float
    statuses: dict[int, int]
    longest_wait: float
    num_lost: int
    memory: Memory

    @property
    def num_requests(self) -> int:
        return sum(self.statuses.values())

    @property
    def num_faults(self) -> int:
        return sum(count for status, count in self.statuses.items() if is_fault(status))


@dataclass
class HoldResults:
    """Memory in bytes, `before` after one request of every kind."""

    before: Memory
    after: Memory
    rows: list[Row]
    fairness: list[FairnessResult]
    soak: list[tuple[float, int]]
    exit_code: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(replace(self, fairness=[])) | {"fairness": [result.to_dict() for result in self.fairness]}


def run_hold(options: HoldOptions) -> HoldResults:
    """Start a server with the defaults, attack it, end it with SIGTERM, and print the tables.

    BenchError where the server does not start or does not end as it should.
    """
    if not sys.platform.startswith("linux"):
        raise BenchError("this reads /proc for the server's memory, which only Linux has")
    _allow_descriptors()
    with _serving(options.bundles) as (server, port):
        target = Target("127.0.0.1", port)
        asyncio.run(target.ask_all(ordinary_requests(), num_clients=1))
        if any(status not in {200, 400} for status in target.statuses):  # 400: no shipped model has a chat template
            raise BenchError(f"ordinary requests were answered with {dict(target.statuses)}, see {target.examples}")
        os.nice(_NICENESS)  # the bystander's requests should wait for the server and not for the attacker
        run = _Run(server.pid, target.port)
        try:
            _play(run, options)
            fairness = _measure_fairness(f"http://127.0.0.1:{port}") if _is_chosen("fairness", options.only) else []
            samples = soak(run.target, server.pid, options.soak_seconds, options.seed) if options.soak_seconds else []
        finally:
            run.bystander.close()
        time.sleep(_IDLE_SECONDS)
        after = read_memory(server.pid)
        exit_code = _end(server, port)
    results = HoldResults(run.before, after, run.rows, fairness, samples, exit_code)
    _print_end(results)
    return results


class _Run:
    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.bystander = Bystander("127.0.0.1", port)
        self.target = Target("127.0.0.1", port)
        self.before = read_memory(pid)
        self.rows: list[Row] = []

    def measure(self, name: str, work: Callable[[Target], Awaitable[None]]) -> Row:
        """Let `work` happen and print its row."""
        self.target.statuses = Counter()
        self.target.examples = {}
        self.bystander.waits()
        forget_highest(self.pid)
        start = time.perf_counter()
        asyncio.run(_await(work(self.target)))
        waits, seconds = self.bystander.waits(), time.perf_counter() - start
        row = Row(name, seconds, dict(self.target.statuses), waits.longest, waits.num_lost, read_memory(self.pid))
        self.rows.append(row)
        _print_row(row)
        for status, request in self.target.examples.items():
            print(f"status {status}: {request[:600]!r}", file=sys.stderr)
        return row


async def _await(work: Awaitable[None]) -> None:
    await work


def _play(run: _Run, options: HoldOptions) -> None:
    print("| attack | requests | answers | faults | longest wait ms | MiB, highest | MiB after | s |")
    print("|---|---|---|---|---|---|---|---|")
    for attack in _chosen(options.only):
        run.measure(attack.name, attack.run)
    if not _is_chosen("fuzz", options.only):
        return
    left = options.num_requests - sum(row.num_requests for row in run.rows)
    requests = fuzz(options.seed)
    for start in range(0, left, _FUZZ_AT_A_TIME):
        batch = list(itertools.islice(requests, min(_FUZZ_AT_A_TIME, left - start)))
        run.measure(f"fuzz {start // _FUZZ_AT_A_TIME + 1}", lambda target: target.ask_all(batch, 16))  # noqa: B023


def _chosen(only: tuple[str, ...]) -> list[Attack]:
    return [attack for attack in all_attacks() if _is_chosen(attack.name, only)]


def _is_chosen(name: str, only: tuple[str, ...]) -> bool:
    return not only or any(part in name for part in only)


def _measure_fairness(url: str) -> list[FairnessResult]:
    results = asyncio.run(measure_fairness(url))
    print(f"\n{fairness_table(results)}", flush=True)
    return results


@contextmanager
def _serving(bundles: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    command = [sys.executable, "-m", "service", "--bundles", str(bundles), "--port", str(port), "--log-level", "error"]
    # Not bench.servers.running: how the server ends is one of the things that are measured.
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as server:
        try:
            await_health(server, f"http://127.0.0.1:{port}", command)
            yield server, port
        finally:
            server.kill()


def _end(server: subprocess.Popen[bytes], port: int) -> int:
    """SIGTERM in the middle of requests: all must be answered. The exit code."""
    target = Target("127.0.0.1", port)
    requests = ordinary_requests() * 2

    async def drain() -> None:
        asking = asyncio.ensure_future(target.ask_all(requests, num_clients=len(requests)))
        await asyncio.sleep(_SECONDS_TO_CONNECT)
        server.send_signal(signal.SIGTERM)
        await asking

    asyncio.run(drain())
    answered = len(requests) - target.statuses[NO_ANSWER]
    code = server.wait(60)
    print(f"\nSIGTERM among {len(requests)} requests: {answered} answered, exit code {code}")
    return code


def _allow_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS if hard < 0 else min(hard, _DESCRIPTORS), hard))


def _print_row(row: Row) -> None:
    answers = ", ".join(f"{count} x {status or 'closed'}" for status, count in sorted(row.statuses.items()))
    print(
        f"| {row.name} | {row.num_requests} | {answers} | {row.num_faults} | {1000 * row.longest_wait:.0f} "
        f"| {row.memory.highest / _MIB:.0f} | {row.memory.now / _MIB:.0f} | {row.seconds:.1f} |",
        flush=True,
    )


def _print_end(results: HoldResults) -> None:
    rows, before, after = results.rows, results.before, results.after
    if rows:
        worst = max(rows, key=lambda row: row.longest_wait)
        num_requests, num_faults = sum(row.num_requests for row in rows), sum(row.num_faults for row in rows)
        print(
            f"\n{num_requests} requests, {num_faults} faults, {sum(row.num_lost for row in rows)} bystanders unanswered"
        )
        print(f"longest wait {1000 * worst.longest_wait:.0f} ms ({worst.name})")
    highest = max([row.memory.highest for row in rows], default=after.highest)
    sizes = [f"{size / _MIB:.0f} MiB" for size in (before.now, highest, after.now, after.children)]
    print(f"memory: before {sizes[0]}, highest {sizes[1]}, after {sizes[2]} ({after.now / before.now:.2f} times)")
    print(f"memory of the processes for files: {sizes[3]}")
