"""What the stand-ins of all models share: their work can be held, so that a test sees the engine at a known point."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Gate:
    """After `hold`, every step waits for `allow`; `on_step` is called with the number of each, from 1, as it begins.

    A step is one piece of the model's work: a decode step, a batch of texts, one input.
    """

    def __init__(self, on_step: Callable[[int], None] = lambda _: None) -> None:
        self.on_step = on_step
        self.num_steps = 0
        self._changed = threading.Condition()
        self._permits: float = float("inf")

    def hold(self) -> None:
        self._permits = 0

    def allow(self, num_steps: float = float("inf")) -> None:
        """Let so many more steps happen."""
        with self._changed:
            self._permits += num_steps
            self._changed.notify_all()

    def begin_step(self) -> None:
        """Called by the model as it begins to work."""
        with self._changed:
            self.num_steps += 1
            number = self.num_steps
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._permits > 0, timeout=60)
            self._permits -= 1
        self.on_step(number)

    def wait_for_step(self, number: int) -> None:
        """Until step `number` stands at its beginning."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_steps >= number, timeout=60)
