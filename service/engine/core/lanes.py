"""Short work beside long: two lanes that take turns by the time that each has had."""

from __future__ import annotations

from enum import IntEnum

LEAD_SECONDS = 0.02
"""How far the express lane may be ahead after it was empty: about what a short request takes."""

CONTENDED_SECONDS = 1.0
"""For so long after short work has come, long work is done in small pieces, so that the next finds its turn soon."""


class Lane(IntEnum):
    """Which work goes together: one long request would else set the pace of all short ones in its batches."""

    EXPRESS = 0
    """Of requests that have asked for little so far."""
    BULK = 1


class LaneClock:
    """Which lane is next: the one that has had less time. One that was empty has saved up none, but a lead."""

    def __init__(self, lead: float = LEAD_SECONDS) -> None:
        self._lead = lead
        self._spent = [0.0, 0.0]
        self._had_express = self._had_bulk = False

    def choose(self, has_express: bool, has_bulk: bool) -> Lane:
        """The lane whose turn it is, where at least one has work."""
        spent = self._spent
        if has_express and not self._had_express:
            spent[Lane.EXPRESS] = max(spent[Lane.EXPRESS], spent[Lane.BULK] - self._lead)
        if has_bulk and not self._had_bulk:
            spent[Lane.BULK] = max(spent[Lane.BULK], spent[Lane.EXPRESS])
        self._had_express, self._had_bulk = has_express, has_bulk
        if has_express and has_bulk:
            return Lane.EXPRESS if spent[Lane.EXPRESS] <= spent[Lane.BULK] else Lane.BULK
        return Lane.EXPRESS if has_express else Lane.BULK

    def spend(self, lane: Lane, time: float) -> None:
        """The lane has had so much, in the unit of the lead."""
        self._spent[lane] += time
