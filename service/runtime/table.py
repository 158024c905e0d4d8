"""A table of cache rows on ONNX Runtime: bound by pointer, written in place, grown in buckets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.engine.backend import Candidates, Ids, RowTable
from service.runtime.graphs import DecoderGraphs
from service.runtime.growth import Blocks, bucket, fit, reserve
from service.runtime.memory import Block

_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)


def source_bucket(length: int, limit: int) -> int:
    """The capacity for sources: multiples of 4 up to 64, finer because they do not grow while they are translated."""
    return min(limit, -(-length // 4) * 4) if length <= 64 else bucket(length, limit)


class OnnxRowTable:
    """Rows of one model; see `service.engine.backend.RowTable`. Its blocks grow and shrink with what is in them.

    `cache` has a row for each beam, `cross` and `source_lengths` one for each slot.
    """

    def __init__(self, graphs: DecoderGraphs, max_rows: int, beam_size: int) -> None:
        self._graphs, self._beam_size = graphs, beam_size
        self._blocks = Blocks(graphs.spares, 2 * graphs.num_layers, graphs.width, max_rows)
        self.cache: Block | None = None
        self.cross: Block | None = None
        self._scratch: Block | None = None
        self.source_lengths: Ids = np.ones(max_rows // beam_size, dtype=np.int64)
        self._input_ids: Ids = np.zeros(max_rows, dtype=np.int64)
        self._write_indices: Ids = np.zeros(max_rows, dtype=np.int64)
        self._read_indices: Ids = np.arange(max_rows, dtype=np.int64)  # every row has one new token
        # Beam search looks at twice as many candidates as beams, because each beam may end once.
        width = 1 if beam_size == 1 else 2 * beam_size
        self._num_candidates: Ids = np.array([width], dtype=np.int64)
        self._candidates = Candidates(np.empty((max_rows, width), np.int64), np.empty((max_rows, width), np.float32))
        self._binding = graphs.decoder.io_binding()
        self._bound: tuple[int, Block, Block] | None = None

    def encode(self, input_ids: Ids, lengths: Ids, slots: Sequence[int]) -> None:
        num_sources, longest = input_ids.shape
        graphs = self._graphs
        scratch = self._scratch
        # The graph's outputs are packed, so any block of enough bytes serves; it is kept for the next time.
        if scratch is None or scratch.shape[1] * scratch.shape[2] < num_sources * longest:
            scratch = graphs.memory.allocate((2 * graphs.num_layers, num_sources, longest, graphs.width), graphs.dtype)
            self._scratch = scratch
        encoded = graphs.encode(input_ids, lengths, scratch)
        self.cross = self._reserve(self.cross, max(slots) + 1, self._source_capacity(longest))
        for source, slot in enumerate(slots):
            self.cross.copy_row(slot, encoded, source, int(lengths[source]))
            self.source_lengths[slot] = lengths[source]

    def step(self, input_ids: Ids, write_indices: Ids) -> Candidates:
        num_rows = len(input_ids)
        self._input_ids[:num_rows] = input_ids
        self._write_indices[:num_rows] = write_indices
        graphs = self._graphs
        num_slots = num_rows // self._beam_size
        longest, longest_source = int(write_indices.max()) + 1, int(self.source_lengths[:num_slots].max())
        self.cache = self._fit(self.cache, num_rows, self._capacity(longest))
        self.cross = self._fit(self.cross, num_slots, self._source_capacity(longest_source))
        self._bind(num_rows, num_slots)
        graphs.memory.synchronize()
        graphs.decoder.run_with_iobinding(self._binding)
        return Candidates(self._candidates.ids[:num_rows], self._candidates.log_probs[:num_rows])

    def copy_cache(self, copies: Sequence[tuple[int, int]], length: int) -> None:
        assert self.cache is not None
        for source, destination in copies:
            self.cache.copy_row(destination, self.cache, source, length)

    def move_slot(self, source: int, destination: int, length: int) -> None:
        self.take_slot(self, source, destination, length)

    def take_slot(self, other: RowTable, source: int, destination: int, length: int) -> None:
        assert isinstance(other, OnnxRowTable)
        assert other.cross is not None
        source_length = int(other.source_lengths[source])
        self.cross = self._reserve(self.cross, destination + 1, self._source_capacity(source_length))
        self.cross.copy_row(destination, other.cross, source, source_length)
        self.source_lengths[destination] = source_length
        if length:
            assert other.cache is not None
            size = self._beam_size
            self.cache = self._reserve(self.cache, (destination + 1) * size, self._capacity(length))
            for beam in range(size):
                self.cache.copy_row(destination * size + beam, other.cache, source * size + beam, length)

    def release(self) -> None:
        for block in (self.cache, self.cross):
            self._blocks.release(block)
        self.cache = self.cross = None

    def _capacity(self, length: int) -> int:
        return bucket(length, self._graphs.max_target_tokens)

    def _source_capacity(self, length: int) -> int:
        return source_bucket(length, self._graphs.max_source_tokens)

    def _fit(self, block: Block | None, num_rows: int, capacity: int) -> Block:
        return fit(block, num_rows, capacity, self._blocks)

    def _reserve(self, block: Block | None, num_rows: int, capacity: int) -> Block:
        return reserve(block, num_rows, capacity, self._blocks)

    def _bind(self, num_rows: int, num_slots: int) -> None:
        """Bind the first `num_rows` rows; the pointers stay bound for as long as nothing moves."""
        assert self.cache is not None
        assert self.cross is not None
        bound = self._bound
        # The blocks themselves are kept and compared: an id, like an address, is used again once a block is gone.
        if bound is None or bound[0] != num_rows or bound[1] is not self.cache or bound[2] is not self.cross:
            self._graphs.bind_blocks(self._binding, num_rows, self.cache, num_slots, self.cross)
            self._bind_host_arrays(num_rows, num_slots)
            self._bound = num_rows, self.cache, self.cross
        elif self._graphs.memory.name != "cpu":
            self._bind_host_arrays(num_rows, num_slots)  # binding is what copies them to the device

    def _bind_host_arrays(self, num_rows: int, num_slots: int) -> None:
        inputs = {
            "input_ids": (self._input_ids, (num_rows, 1)),
            "write_indices": (self._write_indices, (num_rows,)),
            "read_indices": (self._read_indices, (num_rows,)),
            "source_lengths": (self.source_lengths, (num_slots,)),
            "num_candidates": (self._num_candidates, (1,)),
        }
        for name, (array, shape) in inputs.items():
            self._binding.bind_input(name, "cpu", 0, _INT64, shape, array.ctypes.data)
        ids, log_probs = self._candidates
        shape = (num_rows, ids.shape[1])
        self._binding.bind_output("candidate_ids", "cpu", 0, _INT64, shape, ids.ctypes.data)
        self._binding.bind_output("candidate_log_probs", "cpu", 0, _FLOAT32, shape, log_probs.ctypes.data)
