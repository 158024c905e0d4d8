"""Where the engine reports what it does, so that it needs no metrics library of its own."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Called from the engine's own thread: implementations must be quick and must not raise."""

    def on_encode(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        """One encoder batch ran: real tokens, and the padding added to make it rectangular."""

    def on_step(self, num_rows: int, num_new_tokens: int, num_padded_tokens: int) -> None:
        """One decoder step ran over `num_rows` rows of the cache."""

    def on_prompt(self, num_tokens: int, num_reused_tokens: int, num_new_tokens: int) -> None:
        """Prefill of a prompt began, `num_reused_tokens` of it from the prefix cache; it gives `num_new_tokens`."""

    def on_queue(self, seconds: float) -> None:
        """One request was admitted after waiting this long."""

    def on_rows(self, active_rows: int, max_rows: int) -> None:
        """The number of occupied cache rows of one loop changed."""

    def on_device_step(self, run: str) -> None:
        """A device ran a step as a CUDA graph (`captured` or `replayed`), or operator by operator (`ordinary`)."""


class NullObserver:
    """Ignores everything; the default."""

    def on_encode(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        return None

    def on_step(self, num_rows: int, num_new_tokens: int, num_padded_tokens: int) -> None:
        return None

    def on_prompt(self, num_tokens: int, num_reused_tokens: int, num_new_tokens: int) -> None:
        return None

    def on_queue(self, seconds: float) -> None:
        return None

    def on_rows(self, active_rows: int, max_rows: int) -> None:
        return None

    def on_device_step(self, run: str) -> None:
        return None
