"""Search strategies over the candidates of one sequence: pure, in plain lists, one object a sequence.

What they find equals `model/reference.py`, token for token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import NamedTuple

from service.engine.types import DecodingOptions, Hypothesis


class Advance(NamedTuple):
    """What the next step needs: a token for each beam, and which earlier beam each one continues."""

    tokens: list[int]
    parents: list[int]


class GreedySearch:
    """The likeliest token each time; the score is only computed for what is returned."""

    num_rows = 1

    def __init__(self, options: DecodingOptions, eos_id: int) -> None:
        self._options, self._eos_id = options, eos_id
        self._tokens: list[int] = []
        self._score = 0.0

    def advance(self, token: int, log_prob: float) -> bool:
        """Take one token; False when the sequence is finished."""
        self._score += log_prob
        if token == self._eos_id:
            self._finish(True)
            return False
        self._tokens.append(token)
        if len(self._tokens) == self._options.max_new_tokens:
            self._finish(False)
            return False
        return True

    def _finish(self, ended: bool) -> None:
        length = len(self._tokens) + ended
        score = self._score / length**self._options.length_penalty
        self.hypotheses = (Hypothesis(tuple(self._tokens), score, ended),)


class BeamSearch:
    """Beam search (Graves 2012, https://arxiv.org/abs/1211.3711): `beam_size` hypotheses side by side.

    Each step ranks the continuations of all beams and looks at the best 2 x beam_size (more where there are several end
    tokens, because each may end a beam). An end token among the first beam_size of them finishes a hypothesis; the best
    beam_size others live on. The search ends when that many have finished, or at `max_new_tokens`, where the live ones
    count as they stand.
    """

    def __init__(self, options: DecodingOptions, eos_ids: Collection[int]) -> None:
        self._options, self._eos_ids = options, eos_ids
        self.num_rows = options.beam_size
        self.num_candidates = options.beam_size * (1 + len(eos_ids))
        """How many of each beam's best tokens a step looks at."""
        self._scores = [0.0]
        self._histories: list[tuple[int, ...]] = [()]
        self._finished: list[Hypothesis] = []
        self._length = 0

    def advance(self, ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]) -> Advance | None:
        """Continue with the candidates of each beam, (K,N) best first; None when the sequence is finished."""
        beam_size, ends, width = self.num_rows, self._eos_ids, self.num_candidates
        self._length += 1
        # At the first step all beams are the same, so only the first has a score.
        continuations = [
            (score + log_prob, beam, token)
            for beam, score in enumerate(self._scores)
            for token, log_prob in zip(ids[beam][:width], log_probs[beam], strict=False)
        ]
        continuations.sort(key=itemgetter(0), reverse=True)
        tokens: list[int] = []
        parents: list[int] = []
        scores: list[float] = []
        for rank, (score, beam, token) in enumerate(continuations[:width]):
            if token in ends:
                if rank < beam_size:
                    self._add(self._histories[beam], score, True)
            elif len(tokens) < beam_size:
                tokens.append(token)
                parents.append(beam)
                scores.append(score)
        histories = self._histories
        self._histories = [(*histories[parent], token) for parent, token in zip(parents, tokens, strict=True)]
        self._scores = scores
        if len(self._finished) >= beam_size:
            return None
        if self._length == self._options.max_new_tokens:
            for history, score in zip(self._histories, scores, strict=True):
                self._add(history, score, False)
            return None
        return Advance(tokens, parents)

    def _add(self, history: tuple[int, ...], score: float, ended: bool) -> None:
        normalised = score / self._length**self._options.length_penalty
        self._finished.append(Hypothesis(history, normalised, ended))

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        ranked = sorted(self._finished, key=lambda hypothesis: -hypothesis.score)
        return tuple(ranked[: self._options.num_hypotheses])


def assign_rows(parents: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Give each new beam a cache row with as few copies as possible.

    A parent's first child stays in the parent's row, which then needs no copy; further children go to the rows of beams
    that died. Returns for each new beam its row (0 to K-1), and the copies as (source, destination): no row is both.
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
