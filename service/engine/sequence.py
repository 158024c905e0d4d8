"""A request that has been admitted: its search, its rows, and where it stands."""

from __future__ import annotations

import time

from service.engine.backend import Candidates
from service.engine.search import BeamSearch, GreedySearch, assign_rows
from service.engine.types import GenerationResult
from service.engine.waiting import Ticket


class Sequence:
    """One admitted request. `rows[k]` is the cache row of beam k, `tokens[k]` what enters it next, at `position`."""

    def __init__(self, ticket: Ticket, bos_id: int, eos_id: int) -> None:
        options = ticket.request.options
        self.ticket = ticket
        self.search: GreedySearch | BeamSearch
        self.search = GreedySearch(options, eos_id) if options.beam_size == 1 else BeamSearch(options, eos_id)
        self.rows: list[int] = []
        self.tokens = [bos_id] * options.beam_size
        self.position = 0
        self.admitted = time.monotonic()
        self.copies: list[tuple[int, int]] = []

    @property
    def num_source_tokens(self) -> int:
        return self.ticket.request.num_tokens

    def advance(self, candidates: Candidates) -> bool:
        """Take this step's candidates; False when finished. `copies` says which rows to copy before the next step."""
        self.position += 1
        if isinstance(self.search, GreedySearch):
            row = self.rows[0]
            token = int(candidates.ids[row, 0])
            self.tokens[0] = token
            return self.search.advance(token, float(candidates.log_probs[row, 0]))
        ids, log_probs = candidates.ids[self.rows].tolist(), candidates.log_probs[self.rows].tolist()
        step = self.search.advance(ids, log_probs)
        if step is None:
            return False
        beams, copies = assign_rows(step.parents)
        self.copies = [(self.rows[source], self.rows[destination]) for source, destination in copies]
        self.rows = [self.rows[beam] for beam in beams]
        self.tokens = step.tokens
        return True

    def result(self) -> GenerationResult:
        return GenerationResult(
            hypotheses=self.search.hypotheses,
            queue_seconds=self.admitted - self.ticket.submitted,
            inference_seconds=time.monotonic() - self.admitted,
            num_input_tokens=self.num_source_tokens,
        )
