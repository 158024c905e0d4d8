"""Checkpoint -> bundle: graphs, ONNX translations, precisions, parity check, manifest.

`export.manifest` and `export.bundle` are free of torch and onnx, because the serving process imports them.
"""
