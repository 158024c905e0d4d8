"""The one graph of a decoder-only bundle as an ONNX Runtime session, and how rows of a block are bound to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from export.bundle import Bundle, BundleError
from service.runtime.graphs import memory_of, open_session
from service.runtime.growth import Spares
from service.runtime.memory import Block, Memory


class DecoderGraph:
    """One precision of a decoder on one device; safe to use from several threads."""

    def __init__(
        self, bundle: Bundle, precision: str, device: str, num_threads: int, memory: Memory | None = None
    ) -> None:
        config = bundle.config
        if config.architecture != "decoder":
            raise BundleError(f"bundle {bundle.path} is of the architecture {config.architecture!r}, not a decoder")
        self.session = open_session(bundle.graph_path(precision, "decoder"), device, num_threads)
        # After the session, which loads the CUDA library that memory calls.
        self.memory = memory or memory_of(device)
        self.num_layers, self.width, self.vocab_size = config.num_decoder_layers, config.cache_width, config.vocab_size
        self.max_total_tokens = bundle.manifest.limits.max_target_tokens
        specs = {spec.name: spec for spec in bundle.graph(precision, "decoder").inputs}
        self.dtype: np.dtype[Any] = np.dtype(specs["key_cache.0"].dtype)
        self.spares = Spares(self.memory, self.dtype)
        names = [f"{part}_cache.{layer}" for layer in range(self.num_layers) for part in ("key", "value")]
        self._names = [(name, f"new_{name}") for name in names]

    def allocate(self, num_rows: int, capacity: int) -> Block:
        """A block for the keys and values of every layer."""
        return self.memory.allocate((2 * self.num_layers, num_rows, capacity, self.width), self.dtype)

    def bind_rows(self, binding: Any, cache: Block, first_row: int, num_rows: int) -> None:
        """Bind rows of the cache as they lie; new caches go where the old ones are."""
        # ONNX Runtime believes the shapes that it is given: a row too many would be written beyond the block.
        if first_row < 0 or first_row + num_rows > cache.shape[1]:
            raise IndexError(f"rows {first_row} to {first_row + num_rows - 1} do not fit a block of {cache.shape[1]}")
        shape, device = (num_rows, *cache.shape[2:]), self.memory.name
        for layer, (name, new_name) in enumerate(self._names):
            pointer = cache.pointer(layer, first_row)
            binding.bind_input(name, device, 0, self.dtype, shape, pointer)
            binding.bind_output(new_name, device, 0, self.dtype, shape, pointer)
