"""Which steps are recorded, and what becomes of those that cannot be."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from service.engine.core.arrays import Candidates
from service.runtime import step_graphs
from service.runtime.step_graphs import Run, StepGraphs

GRAPH_ID = "gpu_graph_id"


def _entry(options: Any, name: str) -> str:
    try:
        return str(options.get_run_config_entry(name))
    except RuntimeError:  # not set
        return ""


class Session:
    """Counts runs by their graph's number; `wrong` recorded runs give other candidates, `broken` ones fail."""

    def __init__(self, *, wrong: bool = False, broken: bool = False) -> None:
        self.wrong, self.broken = wrong, broken
        self.runs: list[int] = []
        self.waits: list[bool] = []
        self.ids = np.array([[4], [5]])

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        number = int(options.get_run_config_entry(GRAPH_ID))
        self.runs.append(number)
        self.waits.append(_entry(options, "disable_synchronize_execution_providers") != "1")
        if number >= 0 and self.broken:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.ids = np.array([[4], [5]]) + (number >= 0 and self.wrong)

    def read(self) -> Candidates:
        return Candidates(self.ids, np.zeros((2, 1), np.float32))


def make(session: Session) -> tuple[StepGraphs, list[Run]]:
    seen: list[Run] = []
    return StepGraphs(session, "m", seen.append), seen


def test_a_bucket_is_recorded_once_and_then_launched() -> None:
    session = Session()
    graphs, seen = make(session)
    for key in ("small", "small", "large", "small", "large"):
        graphs.run(None, key, session.read)
    assert seen == ["captured", "replayed", "captured", "replayed", "replayed"]
    assert session.runs == [-1, 0, 0, 0, -1, 1, 1, 0, 1]


def test_a_step_that_another_follows_is_not_waited_for() -> None:
    session = Session()
    graphs, _ = make(session)
    for waits in (False, False, True):
        graphs.run(None, "small", session.read, waits=waits)
    assert session.waits == [True] * 3 + [False, True]  # what is recorded is looked at


def test_prompts_are_not_recorded() -> None:
    session = Session()
    graphs, seen = make(session)
    graphs.run(None, None, session.read)
    assert (session.runs, seen) == ([-1], [])


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({"wrong": True}, "a recorded step gave other candidates than an ordinary one"),
        ({"broken": True}, "a step could not be recorded: operation not permitted when stream is capturing"),
    ],
)
def test_a_fault_turns_recording_off_and_is_told(
    faults: dict[str, bool], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session(**faults)
    graphs, seen = make(session)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            graphs.run(None, "small", session.read)
            assert session.read().ids.tolist() == [[4], [5]]  # what an ordinary run gives
    assert seen == ["ordinary"] * 3
    assert [record.__dict__["reason"] for record in caplog.records] == [reason]


def test_there_is_an_end_to_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_graphs, "_MAX_GRAPHS", 2)
    session = Session()
    graphs, seen = make(session)
    for key in (1, 2, 3, 3, 1):
        graphs.run(None, key, session.read)
    assert seen == ["captured", "captured", "ordinary", "ordinary", "replayed"]
