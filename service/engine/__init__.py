"""Continuous batching over token ids; knows neither FastAPI nor ONNX Runtime."""
