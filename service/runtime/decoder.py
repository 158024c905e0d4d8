"""A bundle that decodes, with a source or without, as the decoding engine's backend, and its graphs as sessions."""

from __future__ import annotations

from typing import Any

import numpy as np

from export.bundle import Bundle, BundleError
from service.engine.core.arrays import Ids
from service.runtime.call import Call, Shape
from service.runtime.graphs import CacheType, memory_of, open_session
from service.runtime.growth import Blocks, Spares
from service.runtime.memory import Block, Memory
from service.runtime.step_graphs import OPTIONS, ObserveRun, StepGraphs
from service.runtime.table import OnnxTable

_INT64 = np.dtype(np.int64)


class OnnxDecoderBackend:
    """One precision of a bundle on one device; see `service.engine.decode.backend.Backend`.

    With `observe`, which is called with how each step ran, steps are recorded as CUDA graphs; only one thread may then
    run them. Raises BundleError for a bundle without a decoder.
    """

    def __init__(
        self,
        bundle: Bundle,
        precision: str,
        device: str = "cpu",
        num_threads: int = 1,
        memory: Memory | None = None,
        observe: ObserveRun | None = None,
    ) -> None:
        config = bundle.config
        self._graphs = graphs = DecoderGraphs(bundle, precision, device, num_threads, memory, observe)
        self.eos_ids: tuple[int, ...] = (config.eos_id,) if graphs.has_source else bundle.generate.eos_token_ids
        self.suppressed_ids = graphs.suppressed_ids
        self.bos_id, self.pad_id, self.vocab_size = config.bos_id, config.pad_id, config.vocab_size
        self.num_candidates = graphs.num_candidates
        self.max_total_tokens, self.max_source_tokens = graphs.max_total_tokens, graphs.max_source_tokens
        self.bytes_per_position = 2 * graphs.num_layers * graphs.width * graphs.dtype.itemsize
        self.bytes_per_source_token = self.bytes_per_position if graphs.has_source else 0
        self.usable_bytes = graphs.memory.usable_bytes()
        """The device's memory, of which the cache may take a share."""

    def new_table(self, max_rows: int, beam_size: int = 1) -> OnnxTable:
        return OnnxTable(self._graphs, max_rows, beam_size)


class DecoderGraphs:
    """The decoder of one bundle, and its encoder where it has one; safe to use from several threads."""

    def __init__(
        self,
        bundle: Bundle,
        precision: str,
        device: str,
        num_threads: int,
        memory: Memory | None = None,
        observe: ObserveRun | None = None,
    ) -> None:
        config = bundle.config
        if config.architecture not in ("decoder", "encoder_decoder"):
            raise BundleError(f"bundle {bundle.path} is of the architecture {config.architecture!r} and has no decoder")
        self.has_source = config.architecture == "encoder_decoder"
        head = bundle.translate if self.has_source else bundle.generate
        self.encoder: Any = None
        if self.has_source:
            self.encoder = open_session(bundle.graph_path(precision, head.graphs["encoder"]), device, num_threads)
        path, options = bundle.graph_path(precision, head.graphs["decoder"]), None if observe is None else OPTIONS
        self.decoder = open_session(path, device, num_threads, cuda=options)
        self.recorded = None if observe is None else StepGraphs(self.decoder, bundle.name, observe)
        self.idle_calls: dict[int, list[Call]] = {}
        # After the sessions, which load the CUDA library that memory calls.
        self.memory = memory or memory_of(device)
        self.num_layers, self.width, self.vocab_size = config.num_decoder_layers, config.cache_width, config.vocab_size
        self.num_candidates = head.decoding.num_candidates
        self.suppressed_ids = head.decoding.suppressed_token_ids
        self.max_source_tokens = bundle.translate.max_source_tokens if self.has_source else 0
        self.max_total_tokens = head.limits.max_target_tokens
        specs = {spec.name: spec for spec in bundle.graph(precision, head.graphs["decoder"]).inputs}
        cache = specs["key_cache.0"]
        self.dtype, self._element = CacheType.of(cache.dtype)
        # Heads whose positions lie apart have a row each in a block of the cache.
        self.reads_rows_alone, self.rows_each = cache.is_by_head, 1
        if cache.is_by_head:
            assert isinstance(cache.shape[1], int)
            self.rows_each = cache.shape[1]
        self.spares = Spares(self.memory, self.dtype)
        parts = [(part, layer) for layer in range(self.num_layers) for part in ("key", "value")]
        self._cache_names = [f"{part}_cache.{layer}" for part, layer in parts]
        self._cross_names = [f"cross_{part}.{layer}" for part, layer in parts]

    def cache_blocks(self, max_rows: int) -> Blocks:
        """For tables of up to `max_rows`, each of which has `rows_each` in a block."""
        return Blocks(self.spares, 2 * self.num_layers, self.width // self.rows_each, max_rows * self.rows_each)

    def source_blocks(self, max_rows: int) -> Blocks:
        """For the sources of up to `max_rows`."""
        return Blocks(self.spares, 2 * self.num_layers, self.width, max_rows)

    def allocate_row(self, length: int) -> Block:
        """A block for the keys and values of one row of a cache."""
        shape = (2 * self.num_layers, self.rows_each, length, self.width // self.rows_each)
        return self.memory.allocate(shape, self.dtype)

    def allocate_sources(self, num_sources: int, length: int) -> Block:
        """A block for what an encoder makes."""
        return self.memory.allocate((2 * self.num_layers, num_sources, length, self.width), self.dtype)

    def encode(self, input_ids: Ids, lengths: Ids, scratch: Block) -> Block:
        """Run the encoder into `scratch`, layer after layer; the result is a view of it as (layers, B, S, width)."""
        num_sources, longest = input_ids.shape
        packed = scratch.view((scratch.shape[0], num_sources, longest, self.width))
        binding = self.encoder.io_binding()
        ids = np.ascontiguousarray(input_ids)
        binding.bind_input("input_ids", "cpu", 0, _INT64, ids.shape, ids.ctypes.data)
        binding.bind_input("lengths", "cpu", 0, _INT64, lengths.shape, lengths.ctypes.data)
        for layer, name in enumerate(self._cross_names):
            shape = (num_sources, longest, self.width)
            binding.bind_output(name, self.memory.name, 0, self._element, shape, packed.pointer(layer))
        self.memory.synchronize()
        self.encoder.run_with_iobinding(binding)
        return packed

    def bind_rows(self, binding: Any, shape: Shape) -> None:
        """Bind rows of the cache and the memories of their slots in place; the cache's outputs replace its inputs."""
        cache, cross, first_row, num_rows = shape.cache, shape.cross, shape.first_row, shape.num_rows
        first, count = first_row * self.rows_each, num_rows * self.rows_each
        _check_rows("rows", cache, first, count)
        device, element = self.memory.name, self._element
        size = (num_rows, self.rows_each, *cache.shape[2:]) if self.reads_rows_alone else (num_rows, *cache.shape[2:])
        for layer, name in enumerate(self._cache_names):
            pointer = cache.pointer(layer, first)
            binding.bind_input(name, device, 0, element, size, pointer)
            binding.bind_output(f"new_{name}", device, 0, element, size, pointer)
        if cross is None:
            return
        first_slot = first_row * shape.num_slots // num_rows
        _check_rows("sources", cross, first_slot, shape.num_slots)
        cross_size = (shape.num_slots, *cross.shape[2:])
        for layer, name in enumerate(self._cross_names):
            binding.bind_input(name, device, 0, element, cross_size, cross.pointer(layer, first_slot))


def _check_rows(noun: str, block: Block, first: int, count: int) -> None:
    """ONNX Runtime does not check bound addresses: a row too many would be written beyond the block."""
    if first < 0 or first + count > block.shape[1]:
        raise IndexError(f"{noun} {first} to {first + count - 1} do not fit a block of {block.shape[1]}")
