"""How a graph will run on ONNX Runtime's CUDA provider, predicted on a machine without a GPU.

`kernels.tsv` lists the kernels of one build of the provider; `placement` says of a graph where each node will run and
what will be copied between host and device. See docs/gpu.md.
"""
