"""How fast an engine decodes when it is full: the least time that a long request can take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.engine.decode.types import DecodingRequest

_FULL = 0.5
"""Steps of at least this share of a loop's rows count: a row of an emptier step takes longer than it has to."""
_WEIGHT = 1 / 16
"""Of each step in the moving average."""
_LEAST_OUTPUT = 0.5
"""Tokens of output for each of the source that an estimate counts on: hardly any translation is shorter."""


class Speed:
    """A moving average of the seconds that a row takes for a token, for each capacity of a table.

    Several loops note their steps. Encoding is left out, and so is what else runs: an estimate is a lower bound.
    """

    def __init__(self, max_rows: int, capacities: Sequence[int]) -> None:
        self._min_rows = max(1, int(_FULL * max_rows))
        self._capacities = tuple(capacities)
        self._seconds: dict[int, float] = {}

    def note(self, num_rows: int, capacity: int, seconds: float) -> None:
        """A step of so many rows of a table took so long."""
        if num_rows < self._min_rows:
            return
        each = seconds / num_rows
        before = self._seconds.get(capacity, each)
        # What is faster counts at once: an estimate must not be too long.
        self._seconds[capacity] = min(each, before + _WEIGHT * (each - before))

    def estimate_seconds(self, requests: Iterable[DecodingRequest]) -> float:
        """What one loop needs for `requests` at the least; lengths that were not measured yet count as nothing."""
        return sum(
            request.num_rows * self._num_steps(request) * self._seconds.get(self._capacity(request), 0.0)
            for request in requests
        )

    @staticmethod
    def _num_steps(request: DecodingRequest) -> int:
        likely = int(_LEAST_OUTPUT * len(request.source_ids or ()))
        return min(request.options.max_new_tokens, max(1, likely))

    def _capacity(self, request: DecodingRequest) -> int:
        length = len(request.source_ids or ())
        return next((capacity for capacity in self._capacities if length <= capacity), 0)
