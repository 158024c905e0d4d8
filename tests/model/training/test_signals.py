import signal

import pytest

from model.training.signals import StopRequest


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_is_noted_once_and_its_handler_restored(name: str) -> None:
    number = getattr(signal, name)
    seen: list[int] = []
    before = signal.signal(number, lambda received, frame: seen.append(received))
    try:
        with StopRequest() as stop:
            signal.raise_signal(number)
            assert stop.signal_number == number
            assert seen == []
            signal.raise_signal(number)
        assert seen == [number]
    finally:
        signal.signal(number, before)


def test_a_run_under_nohup_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
        assert stop.signal_number is None
    finally:
        signal.signal(signal.SIGHUP, before)
