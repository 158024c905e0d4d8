"""The two graphs of an encoder-decoder bundle as ONNX Runtime sessions, and how blocks are bound to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from export.bundle import Bundle
from service.engine.backend import Ids
from service.runtime.growth import Spares
from service.runtime.memory import Block, CudaMemory, HostMemory, Memory

_INT64 = np.dtype(np.int64)


def open_session(
    path: Path,
    device: str,
    num_threads: int,
    profile: Path | None = None,
    cuda: Mapping[str, str] | None = None,
    *,
    repeats_shapes: bool = True,
) -> Any:
    """An ONNX Runtime session of one graph; `num_threads` compute each operator on the CPU.

    `profile` is the beginning of a file name that the runtime writes to what ran where, for measurements; `cuda` are
    options of the CUDA provider beside those that it gets here. `repeats_shapes` says that runs are alike for long, so
    that it pays to plan the memory of one ahead.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.enable_mem_pattern = repeats_shapes
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    # Threads spin while they wait for the next operator, which is there sooner than they could be woken, but not from
    # one run to the next, when Python wants the cores (docs/decisions/0054-threads-of-generation.md).
    options.add_session_config_entry("session.force_spinning_stop", "1")
    providers: list[Any] = ["CPUExecutionProvider"]
    if device == "cuda":
        # The default doubles the arena whenever it grows, and odd shapes make it grow for ever.
        ort.preload_dlls()  # the CUDA and cuDNN libraries that the gpu extra installed beside it
        providers.insert(0, ("CUDAExecutionProvider", {"arena_extend_strategy": "kSameAsRequested", **(cuda or {})}))
    # The fused kernel of a sum and its norm takes four times as long as the two on the CPU (docs/decisions/0042).
    slow_fusions = ["SkipLayerNormFusion"] if device == "cpu" else []
    session = ort.InferenceSession(str(path), options, providers=providers, disabled_optimizers=slow_fusions)
    # Without a usable GPU the runtime goes on with the CPU and says so only in its log.
    if device == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError(
            "ONNX Runtime could not start its CUDA provider: check the driver and the CUDA and cuDNN libraries "
            "(the gpu extra installs the latter), or choose the device cpu"
        )
    return session


def memory_of(device: str) -> Memory:
    """Where the caches of a session on `device` live."""
    return CudaMemory() if device == "cuda" else HostMemory()


class DecoderGraphs:
    """Encoder and decoder of one bundle in one precision on one device; safe to use from several threads."""

    def __init__(
        self, bundle: Bundle, precision: str, device: str, num_threads: int, memory: Memory | None = None
    ) -> None:
        config = bundle.config
        self.encoder = open_session(bundle.graph_path(precision, "encoder"), device, num_threads)
        self.decoder = open_session(bundle.graph_path(precision, "decoder"), device, num_threads)
        # After the sessions, which load the CUDA library that memory calls.
        self.memory = memory or memory_of(device)
        self.num_layers, self.width = config.num_decoder_layers, config.cache_width
        self.num_candidates = bundle.manifest.decoding.num_candidates
        self.max_source_tokens = bundle.manifest.limits.max_source_tokens
        self.max_target_tokens = bundle.manifest.limits.max_target_tokens
        caches = [spec for spec in bundle.graph(precision, "decoder").inputs if spec.name == "key_cache.0"]
        self.dtype: np.dtype[Any] = np.dtype(caches[0].dtype)
        self.spares = Spares(self.memory, self.dtype)
        pairs = [(f"{{}}key{{}}.{i}", f"{{}}value{{}}.{i}") for i in range(self.num_layers)]
        flat = [template for pair in pairs for template in pair]
        self.cache_names = [template.format("", "_cache") for template in flat]
        self.new_cache_names = [template.format("new_", "_cache") for template in flat]
        self.cross_names = [template.format("cross_", "") for template in flat]

    def encode(self, input_ids: Ids, lengths: Ids, scratch: Block) -> Block:
        """Run the encoder into `scratch`, layer after layer; the result is a view of it as (layers, B, S, width)."""
        num_sources, longest = input_ids.shape
        packed = scratch.view((scratch.shape[0], num_sources, longest, self.width))
        binding = self.encoder.io_binding()
        ids = np.ascontiguousarray(input_ids)
        binding.bind_input("input_ids", "cpu", 0, _INT64, ids.shape, ids.ctypes.data)
        binding.bind_input("lengths", "cpu", 0, _INT64, lengths.shape, lengths.ctypes.data)
        for layer, name in enumerate(self.cross_names):
            shape = (num_sources, longest, self.width)
            binding.bind_output(name, self.memory.name, 0, self.dtype, shape, packed.pointer(layer))
        self.memory.synchronize()
        self.encoder.run_with_iobinding(binding)
        return packed

    def bind_blocks(self, binding: Any, num_rows: int, cache: Block, num_slots: int, cross: Block) -> None:
        """Bind the first rows of the cache and the first slots of the sources; new caches go where the old ones are."""
        # ONNX Runtime believes the shapes that it is given: a row too many would be written beyond the block.
        if num_rows > cache.shape[1] or num_slots > cross.shape[1]:
            raise IndexError(
                f"{num_rows} rows of {num_slots} sources do not fit blocks of {cache.shape[1]} and {cross.shape[1]}"
            )
        device = self.memory.name
        cache_shape, cross_shape = (num_rows, *cache.shape[2:]), (num_slots, *cross.shape[2:])
        for layer in range(cache.shape[0]):
            pointer = cache.pointer(layer)
            binding.bind_input(self.cache_names[layer], device, 0, self.dtype, cache_shape, pointer)
            binding.bind_output(self.new_cache_names[layer], device, 0, self.dtype, cache_shape, pointer)
            binding.bind_input(self.cross_names[layer], device, 0, self.dtype, cross_shape, cross.pointer(layer))
