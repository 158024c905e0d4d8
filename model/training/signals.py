"""Stopping between two steps, when everything can be saved."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

# SIGHUP is a terminal that was closed; Windows has none.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """A signal asked the run to stop, and it has saved where it stands."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name} at step {step}, and saved")
        self.signal_number = signal_number


class StopRequest:
    """While it is entered, the first Ctrl-C, SIGTERM or SIGHUP goes to `signal_number`; a second one acts at once."""

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def __enter__(self) -> Self:
        # nohup has SIGHUP ignored, and means it.
        wanted = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._note) for number in wanted}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, signal_number: int, frame: FrameType | None) -> None:
        self.signal_number = signal_number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
