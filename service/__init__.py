"""The HTTP service: bundles in, JSON out.

Nothing under this package imports torch, transformers or onnx; only ONNX Runtime executes models.
"""
