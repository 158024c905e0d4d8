"""Beam search over the candidates of one sequence: pure, in plain lists.

What it finds equals `model/beam_oracle.py`, token for token.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from service.engine.decode.types import DecodingOptions, Hypothesis


class Advance(NamedTuple):
    """What the next step needs: a token for each beam, and which earlier beam each one continues."""

    tokens: list[int]
    parents: list[int]


class BeamSearch:
    """Beam search (Graves 2012, https://arxiv.org/abs/1211.3711): `beam_size` hypotheses side by side.

    Each step ranks the continuations of all beams and looks at the best 2 x beam_size (more where there are several end
    tokens, because each may end a beam). An end token among the first beam_size of them finishes a hypothesis; the best
    beam_size others stay live. The search ends when that many have finished, or later with another `early_stopping`,
    and at `max_new_tokens`, where the live ones count as unfinished hypotheses.
    """

    def __init__(self, options: DecodingOptions, eos_ids: Sequence[int]) -> None:
        self._options, self._eos_ids = options, eos_ids
        self._beam_size = options.beam_size
        self.num_candidates = options.beam_size * (1 + len(eos_ids))
        """How many of each beam's best tokens a step looks at."""
        self._scores = [0.0]
        self.histories: list[tuple[int, ...]] = [()]
        """The new tokens of each live beam."""
        self._finished: list[Hypothesis] = []
        self._length = options.num_forced_tokens
        self._last_length = self._length + options.max_new_tokens

    def advance(self, ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]) -> Advance | None:
        """Continue with the candidates of each beam, (K,N) best first; None when the sequence is finished.

        At first there is one beam, which alone is looked at.
        """
        beam_size, ends, width = self._beam_size, self._eos_ids, self.num_candidates
        self._length += 1
        continuations = [
            (score + log_prob, beam, token)
            for beam, score in enumerate(self._scores)
            for token, log_prob in zip(ids[beam][:width], log_probs[beam], strict=False)
        ]
        if self._options.forces_end and self._length == self._last_length and ends:
            continuations = [(score, beam, ends[0]) for beam, score in enumerate(self._scores)]
        continuations.sort(key=itemgetter(0), reverse=True)
        tokens: list[int] = []
        parents: list[int] = []
        scores: list[float] = []
        histories = self.histories
        for rank, (score, beam, token) in enumerate(continuations[:width]):
            if token in ends:
                if rank < beam_size:
                    self._add(histories[beam], score, True)
            elif len(tokens) < beam_size:
                tokens.append(token)
                parents.append(beam)
                scores.append(score)
        self.histories = [(*histories[parent], token) for parent, token in zip(parents, tokens, strict=True)]
        self._scores = scores
        if len(self._finished) >= beam_size and self._is_settled():
            return None
        if self._length == self._last_length:
            for history, score in zip(self.histories, scores, strict=True):
                self._add(history, score, False)
            return None
        return Advance(tokens, parents)

    def _is_settled(self) -> bool:
        """Whether no live beam is expected to improve on the finished ones."""
        rule, penalty = self._options.early_stopping, self._options.length_penalty
        if rule == "always" or self._beam_size == 1 or not self._scores:
            return True
        length = self._last_length if rule == "never" and penalty > 0 else self._length
        worst = self.hypotheses_of(self._beam_size)[-1].score
        return bool(self._scores[0] / length**penalty <= worst)

    def _add(self, history: tuple[int, ...], score: float, ended: bool) -> None:
        normalised = score / self._length**self._options.length_penalty
        self._finished.append(Hypothesis(history, normalised, ended))

    def hypotheses_of(self, count: int) -> tuple[Hypothesis, ...]:
        """The best `count` of those that have finished, best first."""
        return tuple(sorted(self._finished, key=lambda hypothesis: -hypothesis.score)[:count])

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The best hypotheses found, `num_hypotheses` of them, best first."""
        return self.hypotheses_of(self._options.num_hypotheses)


def assign_rows(parents: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Give each new beam a cache row with as few copies as possible.

    A parent's first child stays in the parent's row, which then needs no copy; further children get the rows of beams
    without any. Returns for each new beam its row (0 to K-1), and the copies as (source, destination): no row is both.
    """
    free = sorted(set(range(len(parents))) - set(parents))
    rows, copies, kept = [], [], set()
    for parent in parents:
        if parent in kept:
            row = free.pop()
            copies.append((parent, row))
        else:
            kept.add(parent)
            row = parent
        rows.append(row)
    return rows, copies
