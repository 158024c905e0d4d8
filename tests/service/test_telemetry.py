"""Nothing that runs models lets ONNX Runtime report to its maker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import importlib, os, sys
importlib.import_module(sys.argv[1])
print("onnxruntime" in sys.modules, repr(os.environ.get("ORT_DISABLE_TELEMETRY")))
"""


@pytest.mark.parametrize("module", ["service.models.loading", "service.runtime.decoder", "export.session"])
@pytest.mark.parametrize(("setting", "expected"), [(None, "1"), ("", "")])
def test_telemetry_is_off_unless_it_was_set(module: str, setting: str | None, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    if setting is not None:
        environment["ORT_DISABLE_TELEMETRY"] = setting
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, module], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout.split() == ["True", repr(expected)]
