"""Decoder steps as CUDA graphs: a step is recorded once for each bucket, and then launched as a whole.

ONNX Runtime records a run under a number (`gpu_graph_id`) when every input and output is bound at a fixed address and
nothing is copied between host and device, and replays it for later runs with that number. See
docs/decisions/0112-cuda-graphs.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Literal

import numpy as np
import onnxruntime as ort

from service.engine.core.arrays import Candidates

logger = logging.getLogger(__name__)

Run = Literal["captured", "replayed", "ordinary"]
"""How a step ran: recorded, replayed, or operator by operator."""

ObserveRun = Callable[[Run], None]

OPTIONS = {"enable_cuda_graph": "1"}
"""Options of the CUDA provider that a session needs."""

_ORDINARY = -1
"""The number under which nothing is recorded."""

_MAX_GRAPHS = 256
_TOLERANCE, _EQUAL_ROWS = 0.05, 0.5
"""Of a log-probability between an ordinary run and a recorded one, whose kernels may add in another order, and the
share of rows whose best token must be the same."""


class StepGraphs:
    """The recorded steps of one session, which one thread runs. Others run operator by operator."""

    def __init__(self, session: Any, name: str, observe: ObserveRun) -> None:
        self._session, self._name, self._observe = session, name, observe
        self._numbers: dict[Hashable, int] = {}
        self._is_off = False
        self._ordinary = _options(_ORDINARY)

    def run(self, binding: Any, key: Hashable | None, read: Callable[[], Candidates], *, waits: bool = True) -> None:
        """Run a step whose bucket is `key`: all that is bound, by shape and address. None: prefill, not recorded.

        `read` copies the step's candidates to the host, those of real rows. Without `waits` a recorded step may still
        run when this returns; the next run on this session begins after it.
        """
        if key is None:
            self._session.run_with_iobinding(binding, self._ordinary)
            return
        number = self._numbers.get(key)
        if self._is_off or (number is None and len(self._numbers) >= _MAX_GRAPHS):
            self._session.run_with_iobinding(binding, self._ordinary)
            self._observe("ordinary")
        elif number is not None:
            self._session.run_with_iobinding(binding, _options(number, waits=waits))
            self._observe("replayed")
        else:
            self._capture(binding, key, read)

    def _capture(self, binding: Any, key: Hashable, read: Callable[[], Candidates]) -> None:
        """Run the step three times, ordinarily, recorded and replayed: it writes the same each time."""
        self._session.run_with_iobinding(binding, self._ordinary)
        candidates = read()
        expected = Candidates(candidates.ids.copy(), candidates.log_probs.copy())
        number = len(self._numbers)
        try:
            for _ in range(2):
                self._session.run_with_iobinding(binding, _options(number))
        except Exception as error:  # noqa: BLE001  ONNX Runtime raises classes of its own for each kind of fault
            self._turn_off(f"a step could not be recorded: {error}")
        else:
            found = read()
            if _are_equal(expected, found):
                self._numbers[key] = number
                if len(self._numbers) == _MAX_GRAPHS:
                    logger.warning(
                        "no more CUDA graphs are recorded", extra={"model": self._name, "graphs": number + 1}
                    )
                self._observe("captured")
                return
            self._turn_off("a recorded step gave other candidates than an ordinary one")
        self._session.run_with_iobinding(binding, self._ordinary)
        self._observe("ordinary")

    def _turn_off(self, reason: str) -> None:
        self._is_off = True
        logger.error("CUDA graphs are off: steps run without", extra={"model": self._name, "reason": reason})


def _are_equal(expected: Candidates, found: Candidates) -> bool:
    """Equal up to the order of candidates that are equally likely."""
    chosen = np.mean(expected.ids[:, 0] == found.ids[:, 0])
    close = np.allclose(expected.log_probs, found.log_probs, rtol=0, atol=_TOLERANCE, equal_nan=True)
    return bool(close and chosen >= _EQUAL_ROWS)


def _options(number: int, *, waits: bool = True) -> Any:
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(number))
    if not waits:
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options
