"""A request that has been admitted: its search, its rows, and where it stands."""

from __future__ import annotations

import time
from collections.abc import Sequence as Rows

from service.engine.search import BeamSearch, GreedySearch, assign_rows
from service.engine.types import GenerationResult
from service.engine.waiting import Ticket


class Sequence:
    """One admitted request, in a slot of rows from `first_row` on.

    Beam k has the row `rows[k]` of the slot (0 to beam_size - 1), and `tokens[k]` enters it next, at `position`.
    """

    def __init__(self, ticket: Ticket, bos_id: int, eos_id: int) -> None:
        options = ticket.request.options
        self.ticket = ticket
        self.search: GreedySearch | BeamSearch
        self.search = GreedySearch(options, eos_id) if options.beam_size == 1 else BeamSearch(options, (eos_id,))
        self.first_row = 0
        self.rows = list(range(options.beam_size))
        self.tokens = [bos_id] * options.beam_size
        self.position = 0
        self.admitted = time.monotonic()
        self.copies: list[tuple[int, int]] = []

    @property
    def num_source_tokens(self) -> int:
        return self.ticket.request.num_tokens

    @property
    def beam_size(self) -> int:
        return len(self.rows)

    def place(self, first_row: int) -> None:
        """The slot begins at this row of the table from now on."""
        self.first_row = first_row

    def advance(self, ids: Rows[list[int]], log_probs: Rows[list[float]]) -> bool:
        """Take the candidates of a step over all rows, (rows, N) best first; False when finished.

        `copies` says which rows to copy before the next step.
        """
        self.position += 1
        first, rows = self.first_row, self.rows
        if isinstance(self.search, GreedySearch):
            token = ids[first][0]
            self.tokens[0] = token
            return self.search.advance(token, log_probs[first][0])
        step = self.search.advance([ids[first + row] for row in rows], [log_probs[first + row] for row in rows])
        if step is None:
            return False
        beams, copies = assign_rows(step.parents)
        self.copies = [(first + rows[source], first + rows[destination]) for source, destination in copies]
        self.rows = [rows[beam] for beam in beams]
        self.tokens = step.tokens
        return True

    def result(self) -> GenerationResult:
        return GenerationResult(
            hypotheses=self.search.hypotheses,
            queue_seconds=self.admitted - self.ticket.submitted,
            inference_seconds=time.monotonic() - self.admitted,
            num_input_tokens=self.num_source_tokens,
        )
