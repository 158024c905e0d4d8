"""Batches of fixed size, given all at once: sentences and tokens a second for every batch size, beam and precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from bench.decoding import Decoder, Job, Settings, Source
from bench.rounds import Spread, ratio, time_in_turn

BATCH_SIZES = (1, 8, 32, 64)
BEAM_SIZES = (1, 4)


@dataclass(frozen=True)
class Side:
    """One side of a case at its best: which way to use the threads won, and what it took."""

    name: str
    threads: str
    spread: Spread
    num_sentences: int
    num_tokens: int

    @property
    def sentences_per_second(self) -> float:
        return self.num_sentences / self.spread.median

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.spread.median

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "threads": self.threads,
            "sentences_per_second": round(self.sentences_per_second, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "slowest_sentences_per_second": round(self.num_sentences / self.spread.slowest, 2),
            "fastest_sentences_per_second": round(self.num_sentences / self.spread.fastest, 2),
        }


@dataclass(frozen=True)
class CaseResult:
    """Ours and theirs on one case; `ratio` above 1 means that we are faster."""

    precision: str
    beam_size: int
    batch_size: int
    ours: Side
    theirs: Side

    @property
    def ratio(self) -> float:
        return ratio(self.ours.spread, self.theirs.spread)

    def to_dict(self) -> dict[str, Any]:
        return {
            "precision": self.precision,
            "beam_size": self.beam_size,
            "batch_size": self.batch_size,
            "ratio": round(self.ratio, 3),
            "ours": self.ours.to_dict(),
            "theirs": self.theirs.to_dict(),
        }


@dataclass(frozen=True)
class Agreement:
    """How much of the two sides' outputs is the same."""

    precision: str
    beam_size: int
    num_sentences: int
    equal_sentences: float
    equal_tokens: float

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def compare_outputs(
    ours: Decoder, theirs: Decoder, precision: str, sources: Sequence[Source], settings: Settings
) -> Agreement:
    """Decode `sources` on both sides, and compare token for token."""
    our, their = (side.tokens(side.job(sources, settings)()) for side in (ours, theirs))
    return compare_tokens(our, their, precision, settings.beam_size)


def compare_tokens(
    ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]], precision: str, beam_size: int
) -> Agreement:
    """Outputs of both sides, sentence by sentence and token by token."""
    pairs = [(list(our), list(their)) for our, their in zip(ours, theirs, strict=True)]
    num_tokens = sum(max(len(our), len(their)) for our, their in pairs)
    equal = sum(a == b for our, their in pairs for a, b in zip(our, their, strict=False))
    return Agreement(
        precision=precision,
        beam_size=beam_size,
        num_sentences=len(pairs),
        equal_sentences=sum(our == their for our, their in pairs) / len(pairs),
        equal_tokens=equal / num_tokens if num_tokens else 1.0,
    )


def run_cases(
    ours: Sequence[Decoder],
    theirs: Sequence[Decoder],
    precision: str,
    sources: Sequence[Source],
    max_new_tokens: int,
    rounds: int,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    beam_sizes: Sequence[int] = BEAM_SIZES,
    report: Callable[[CaseResult], None] = lambda _: None,
) -> list[CaseResult]:
    """Every case of one precision: each way to use the threads is tried, then the best of each side run in turn."""
    results = []
    for beam_size, batch_size in product(beam_sizes, batch_sizes):
        settings = Settings(beam_size, max_new_tokens)
        some = sources[: num_sentences(batch_size, len(sources))]
        our_run = _fastest([_Run(decoder, some, settings, batch_size) for decoder in ours])
        their_run = _fastest([_Run(decoder, some, settings, batch_size) for decoder in theirs])
        spreads = time_in_turn({"ours": our_run, "theirs": their_run}, rounds)
        result = CaseResult(
            precision, beam_size, batch_size, our_run.side(spreads["ours"]), their_run.side(spreads["theirs"])
        )
        results.append(result)
        report(result)
    return results


def num_sentences(batch_size: int, available: int) -> int:
    """How many sentences a case decodes: small batches are slow, so they get fewer, in whole batches."""
    wanted = max(batch_size, 16 if batch_size == 1 else 32)
    return max(batch_size, min(wanted, available) // batch_size * batch_size)


class _Run:
    """All batches of one case on one side, one after the other."""

    def __init__(self, decoder: Decoder, sources: Sequence[Source], settings: Settings, batch_size: int) -> None:
        self.decoder = decoder
        self._num_sentences = len(sources)
        self._num_tokens = 0
        self._jobs: list[Job] = [
            decoder.job(sources[start : start + batch_size], settings) for start in range(0, len(sources), batch_size)
        ]

    def __call__(self) -> None:
        answers = [job() for job in self._jobs]
        if not self._num_tokens:  # only in the first, untimed run
            self._num_tokens = sum(len(tokens) for answer in answers for tokens in self.decoder.tokens(answer))

    def side(self, spread: Spread) -> Side:
        return Side(self.decoder.name, str(self.decoder.threads), spread, self._num_sentences, self._num_tokens)


def _fastest(runs: Sequence[_Run]) -> _Run:
    for run in runs:
        run()  # the first run of a new shape allocates
    trials = time_in_turn({str(index): run for index, run in enumerate(runs)}, rounds=1)
    return min(enumerate(runs), key=lambda item: trials[str(item[0])].fastest)[1]
