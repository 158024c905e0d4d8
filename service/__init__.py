"""The HTTP service: bundles in, JSON out.

Nothing under this package imports torch, transformers or onnx; only ONNX Runtime executes models.
"""

import export  # noqa: F401  # it turns ONNX Runtime's telemetry off, which has to happen before the first import of that
