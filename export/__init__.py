"""Checkpoint -> bundle: graphs, ONNX translations, precisions, parity check, manifest.

`export.manifest` and `export.bundle` are free of torch and onnx, because the serving process imports them.
"""

import os

# ONNX Runtime's official builds report usage to their maker unless this is set before they are loaded; whoever wants
# that sets it to an empty value. The server imports this package too (docs/decisions/0002-no-telemetry.md).
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
