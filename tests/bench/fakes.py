"""Sides that cost time only on a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.side import Output, Text


class Clock:
    """Time that only passes when somebody spends it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """Writes `tokens` in turn, one in each `seconds`, and notes the size of each batch."""

    setting = "1x1"

    def __init__(
        self,
        tokens: Sequence[int],
        seconds: float = 1.0,
        clock: Clock | None = None,
        precision: str = "fp32",
        name: str = "fake",
    ) -> None:
        self.tokens, self.seconds, self.precision, self.name = tokens, seconds, precision, name
        self.clock = clock or Clock()
        self.batches: list[int] = []
        self.is_open = True

    def prepare(self, items: Sequence[Text]) -> Callable[[], list[Output]]:
        return lambda: self.run(items)

    def run(self, items: Sequence[Text]) -> list[Output]:
        self.batches.append(len(items))
        start, num = self.clock.now, max(item.max_new_tokens for item in items)
        self.clock.now += num * self.seconds
        times = [start + (place + 1) * self.seconds for place in range(num)]
        ids = [self.tokens[place % len(self.tokens)] for place in range(num)]
        return [Output(tuple(ids[: each.max_new_tokens]), tuple(times[: each.max_new_tokens])) for each in items]

    async def ask(self, items: Sequence[Text]) -> list[Output]:
        return self.run(items)

    def close(self) -> None:
        self.is_open = False
