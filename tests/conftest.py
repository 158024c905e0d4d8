"""What every test needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def subnormal_numbers() -> Iterator[None]:
    """Numbers below the normal range again, after tests that opened a session here.

    ONNX Runtime takes them for zero in the thread that opens one with `session.set_denormal_as_zero`. In the service
    that is a thread of its own; here Hypothesis then refuses to draw any.
    """
    yield
    torch.set_flush_denormal(False)
