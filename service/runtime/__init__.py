"""Bundles on ONNX Runtime, behind the engine's `Backend` protocol; knows neither asyncio nor HTTP."""
