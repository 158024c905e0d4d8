"""Stop sequences in a streamed text."""

from __future__ import annotations

from collections.abc import Sequence


class _Scanner:
    """How much of one stop sequence the end of a text may be: Knuth, Morris and Pratt's automaton (1977)."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._borders = [0] * len(stop)
        length = 0
        for place in range(1, len(stop)):
            while length and stop[place] != stop[length]:
                length = self._borders[length - 1]
            length += stop[place] == stop[length]
            self._borders[place] = length

    def scan(self, character: str) -> bool:
        """Read one more character; True when the sequence is complete."""
        while self.matched and self.stop[self.matched] != character:
            self.matched = self._borders[self.matched - 1]
        self.matched += self.stop[self.matched] == character
        return self.matched == len(self.stop)


class StopMatcher:
    """Ends a text at the first stop sequence that is complete in it; of two that end together, at the longer.

    With `keeps_stop` the text ends with the sequence, as text-generation-inference has it, and nothing is held back.
    Else it ends before the sequence, as OpenAI has it, so that whatever may be the beginning of one is held back until
    it is known not to be.
    """

    def __init__(self, stops: Sequence[str], *, keeps_stop: bool = False) -> None:
        if not all(stops):
            raise ValueError("a stop sequence is empty; it must have at least one character")
        self._scanners = [_Scanner(stop) for stop in stops]
        self._keeps_stop = keeps_stop
        self._held = ""
        self.is_found = False

    def push(self, text: str) -> str:
        """The part of the text so far that no stop sequence can still take; "" after its end."""
        if self.is_found or not self._scanners:
            return "" if self.is_found else text
        for place, character in enumerate(text):
            found = [scanner.stop for scanner in self._scanners if scanner.scan(character)]
            if found:
                self.is_found = True
                whole = self._held + text[: place + 1]
                self._held = ""
                return whole if self._keeps_stop else whole[: -max(map(len, found))]
        whole = self._held + text
        num_held = 0 if self._keeps_stop else max(scanner.matched for scanner in self._scanners)
        self._held = whole[len(whole) - num_held :]
        return whole[: len(whole) - num_held]

    def flush(self) -> str:
        """The part that was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held
