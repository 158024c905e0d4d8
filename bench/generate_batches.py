"""Streams that begin together: tokens a second, time to the first token and gaps, side by side and round by round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.arrivals import percentile
from bench.generation import Generator, Output, Prompt
from bench.models import BenchError
from bench.rounds import Spread, ratio, time_in_turn

STREAMS = (1, 8, 32)
PEERS = ("ctranslate2", "transformers", "onnxruntime-genai")

_LEAST_EQUAL = 0.9
"""Of the tokens of a float32 side, those that must be the reference's; fewer mean that it computes another thing."""

_LEAST_DIFFERENT = 0.1
"""Share of an output's tokens that must differ from each other: a text that repeats itself proves nothing."""

_TRIAL_TOKENS = 16
"""New tokens in the trial of a setting: enough to see which is faster at steps, and not only at reading the prompt."""


@dataclass(frozen=True)
class Agreement:
    """How much of what a side writes is what the reference writes in float32."""

    side: str
    precision: str
    equal_tokens: float
    equal_outputs: float
    different_tokens: float
    """Different tokens of an output over all of its tokens, on average."""

    def to_dict(self) -> dict[str, Any]:
        return {name: round(v, 4) if isinstance(v, float) else v for name, v in vars(self).items()}


@dataclass(frozen=True)
class Measured:
    """One side with so many streams, over all rounds. Times in seconds."""

    side: str
    precision: str
    setting: str
    num_streams: int
    num_tokens: int
    spread: Spread
    first_tokens: tuple[float, ...]
    gaps: tuple[float, ...]

    @property
    def tokens_per_second(self) -> float:
        """The median over rounds."""
        return self.num_tokens / self.spread.median

    def to_dict(self) -> dict[str, Any]:
        return {
            "side": self.side,
            "precision": self.precision,
            "setting": self.setting,
            "streams": self.num_streams,
            "tokens_per_second": round(self.tokens_per_second, 2),
            "slowest_tokens_per_second": round(self.num_tokens / self.spread.slowest, 2),
            "fastest_tokens_per_second": round(self.num_tokens / self.spread.fastest, 2),
            **milliseconds("first_token", self.first_tokens),
            **milliseconds("gap", self.gaps),
        }


@dataclass(frozen=True)
class CaseResult:
    """All sides of one model with so many streams."""

    model: str
    num_streams: int
    sides: tuple[Measured, ...]

    def ratios(self, side: Measured) -> dict[str, float]:
        """How many times as fast as each peer `side` is, in each of its precisions: medians over rounds."""
        return {
            f"{peer.side} {peer.precision}": ratio(side.spread, peer.spread)
            for peer in self.sides
            if peer.side in PEERS
        }

    def to_dict(self) -> dict[str, Any]:
        sides = []
        for side in self.sides:
            entry = side.to_dict()
            if side.side not in PEERS:
                entry["ratios"] = {name: round(value, 3) for name, value in self.ratios(side).items()}
            sides.append(entry)
        return {"model": self.model, "streams": self.num_streams, "sides": sides}


def milliseconds(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile, as the JSON file has them."""
    return {f"{name}_p{share}_milliseconds": round(1000 * percentile(seconds, share), 2) for share in (50, 99)}


def gaps(outputs: Sequence[Output]) -> list[float]:
    """The times between each token and the next one of the same output."""
    return [after - before for output in outputs for before, after in zip(output.times, output.times[1:], strict=False)]


def compare_outputs(reference: Sequence[Output], side: Generator, prompts: Sequence[Prompt]) -> Agreement:
    """Continue `prompts`, and compare token for token; BenchError where float32 does not compute the same thing."""
    found = side.generate(prompts)
    for output, prompt in zip(found, prompts, strict=True):
        if not len(output.token_ids) == len(output.times) == prompt.max_new_tokens:
            raise BenchError(
                f"{side.name} {side.precision} wrote {len(output.token_ids)} tokens, asked for: {prompt.max_new_tokens}"
            )
    pairs = list(zip((output.token_ids for output in reference), (output.token_ids for output in found), strict=True))
    equal = sum(a == b for expected, ids in pairs for a, b in zip(expected, ids, strict=True))
    agreement = Agreement(
        side.name,
        side.precision,
        equal / sum(len(ids) for _, ids in pairs),
        sum(expected == ids for expected, ids in pairs) / len(pairs),
        sum(len(set(ids)) / len(ids) for _, ids in pairs) / len(pairs),
    )
    if side.precision == "fp32" and agreement.equal_tokens < _LEAST_EQUAL:
        raise BenchError(
            f"only {agreement.equal_tokens:.1%} of the tokens of {side.name} in float32 are those of the reference, so "
            "they do not compute the same thing and their speeds cannot be compared"
        )
    if agreement.different_tokens < _LEAST_DIFFERENT:
        raise BenchError(
            f"only {agreement.different_tokens:.1%} of the tokens of {side.name} {side.precision} differ from each "
            "other: a model that repeats itself proves nothing, equal outputs least of all"
        )
    return agreement


def fastest(settings: Sequence[Generator], prompts: Sequence[Prompt]) -> Generator:
    """The one of `settings`, all of one side, that continues `prompts` fastest, tried on a few tokens of each."""
    some = [Prompt(prompt.token_ids, min(_TRIAL_TOKENS, prompt.max_new_tokens)) for prompt in prompts]
    for side in settings:
        side.generate(some)  # the first run of a new shape allocates
    if len(settings) == 1:
        return settings[0]
    trials = time_in_turn({str(n): partial(side.generate, some) for n, side in enumerate(settings)}, rounds=1)
    return min(enumerate(settings), key=lambda item: trials[str(item[0])].fastest)[1]


def run_cases(
    model: str,
    sides: Sequence[Sequence[Generator]],
    prompts: Sequence[Prompt],
    rounds: int,
    streams: Sequence[int] = STREAMS,
    report: Callable[[CaseResult], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[CaseResult]:
    """Every number of streams: each setting of each side is tried, then the best ones run in turn.

    Each runs once before it counts: a cache that grows for the first time takes memory that no process has touched yet,
    which on a virtual machine is the slowest thing of all, and a server does it once.
    """
    results = []
    for num_streams in streams:
        some = prompts[:num_streams]
        best = [fastest(settings, some) for settings in sides]
        for side in best:
            side.generate(some)
        runs = {f"{side.name} {side.precision}": _Run(side, some, clock) for side in best}
        spreads = time_in_turn(runs, rounds, clock)
        result = CaseResult(model, num_streams, _measured(runs, spreads))
        results.append(result)
        report(result)
    return results


class _Run:
    """One case on one side; remembers when tokens came."""

    def __init__(self, side: Generator, prompts: Sequence[Prompt], clock: Callable[[], float]) -> None:
        self.side, self._prompts, self._clock = side, prompts, clock
        self.first_tokens: list[float] = []
        self.gaps: list[float] = []

    @property
    def num_tokens(self) -> int:
        return sum(prompt.max_new_tokens for prompt in self._prompts)

    def __call__(self) -> None:
        start = self._clock()
        outputs = self.side.generate(self._prompts)
        self.first_tokens += [output.times[0] - start for output in outputs]
        self.gaps += gaps(outputs)


def _measured(runs: Mapping[str, _Run], spreads: Mapping[str, Spread]) -> tuple[Measured, ...]:
    return tuple(
        Measured(
            run.side.name,
            run.side.precision,
            run.side.setting,
            len(run.first_tokens) // len(spreads[name].seconds),
            run.num_tokens,
            spreads[name],
            tuple(run.first_tokens),
            tuple(run.gaps),
        )
        for name, run in runs.items()
    )
