"""Where ONNX Runtime's CUDA provider puts the nodes of a graph, read from the log of a session.

This needs a build with the provider, and a CUDA device or stub libraries of one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

import onnxruntime as ort

_PLACED = re.compile(r"placed on \[(\w+)\]")
_NODE = re.compile(r"VerifyEachNodeIsAssignedToAnEp\]\s+(\w+) \((.*?)\)")
_COPY = re.compile(r"Add (Memcpy\w+) (?:after|before) (\S+)")


class Observed(NamedTuple):
    """Nodes on the device by operator, nodes on the host by name with their operators, and copies between the two."""

    device: tuple[str, ...]
    host: Mapping[str, str]
    copies: tuple[tuple[str, str], ...]


def observe(model: str | bytes) -> Observed:
    """Open `model`, a path or its bytes, on the CUDA provider; RuntimeError where there is none."""
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise RuntimeError("this ONNX Runtime has no CUDA provider: install onnxruntime-gpu")
    options = ort.SessionOptions()
    options.log_severity_level = 0
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)  # the runtime writes to the file descriptor, behind Python's back
        os.dup2(log.fileno(), 2)
        try:
            session = ort.InferenceSession(model, options, providers=providers)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        text = log.read().decode(errors="replace")
    if "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("ONNX Runtime could not start its CUDA provider: check the driver and the CUDA libraries")
    provider, device, host = "", list[str](), dict[str, str]()
    for line in text.splitlines():
        if found := _PLACED.search(line):
            provider = found[1]
        elif (found := _NODE.search(line)) and not found[1].startswith("Memcpy"):
            if provider == "CUDAExecutionProvider":
                device.append(found[1])
            else:
                host[found[2]] = found[1]
    return Observed(tuple(device), host, tuple(_COPY.findall(text)))
