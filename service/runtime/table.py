"""A table of cache rows on ONNX Runtime: bound by pointer, written in place, grown in buckets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.engine.backend import Candidates, Ids, RowTable
from service.runtime.graphs import DecoderGraphs
from service.runtime.memory import Block

_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)
_ROW_BUCKET = 8


def bucket(length: int, limit: int) -> int:
    """The capacity for `length` positions: multiples of 16 up to 128, of 32 up to 512, of 128 beyond; at most `limit`.

    The attention operator's cost follows the capacity, and each growth copies the table: steps are neither wide nor
    many.
    """
    step = 16 if length <= 128 else 32 if length <= 512 else 128
    return min(limit, -(-length // step) * step)


def source_bucket(length: int, limit: int) -> int:
    """The capacity for sources: finer, multiples of 8 up to 64, because they do not grow while they are translated."""
    return min(limit, -(-length // 8) * 8) if length <= 64 else bucket(length, limit)


class OnnxRowTable:
    """Rows of one model; see `service.engine.backend.RowTable`. Its blocks grow and shrink with what is in them."""

    def __init__(self, graphs: DecoderGraphs, max_rows: int) -> None:
        self._graphs, self._max_rows = graphs, max_rows
        self.cache: Block | None = None
        self.cross: Block | None = None
        self._scratch: Block | None = None
        self.source_lengths: Ids = np.ones(max_rows, dtype=np.int64)
        self._input_ids: Ids = np.zeros(max_rows, dtype=np.int64)
        self._write_indices: Ids = np.zeros(max_rows, dtype=np.int64)
        self._last_indices: Ids = np.zeros(max_rows, dtype=np.int64)
        num_candidates = graphs.num_candidates
        self._candidates = Candidates(
            np.empty((max_rows, num_candidates), np.int64), np.empty((max_rows, num_candidates), np.float32)
        )
        self._binding = graphs.decoder.io_binding()
        self._bound: tuple[int, Block, Block] | None = None

    def encode(self, input_ids: Ids, lengths: Ids, rows: Sequence[Sequence[int]]) -> None:
        num_sources, longest = input_ids.shape
        graphs = self._graphs
        layers = 2 * graphs.num_layers
        scratch = self._scratch
        # The graph's outputs are packed, so any block of enough bytes serves; it is kept for the next time.
        if scratch is None or scratch.shape[1] * scratch.shape[2] < num_sources * longest:
            scratch = graphs.memory.allocate((layers, num_sources, longest, graphs.width), graphs.dtype)
            self._scratch = scratch
        encoded = graphs.encode(input_ids, lengths, scratch)
        last_row = max(row for group in rows for row in group)
        self.cross = self._reserve(self.cross, last_row + 1, self._source_capacity(longest))
        for source, group in enumerate(rows):
            length = int(lengths[source])
            for row in group:
                self.cross.copy_row(row, encoded, source, length)
                self.source_lengths[row] = length

    def step(self, input_ids: Ids, write_indices: Ids) -> Candidates:
        num_rows = len(input_ids)
        self._input_ids[:num_rows] = input_ids
        self._write_indices[:num_rows] = write_indices
        graphs = self._graphs
        longest, longest_source = int(write_indices.max()) + 1, int(self.source_lengths[:num_rows].max())
        self.cache = self._fit(self.cache, num_rows, self._capacity(longest))
        self.cross = self._fit(self.cross, num_rows, self._source_capacity(longest_source))
        self._bind(num_rows)
        graphs.memory.synchronize()
        graphs.decoder.run_with_iobinding(self._binding)
        return Candidates(self._candidates.ids[:num_rows], self._candidates.log_probs[:num_rows])

    def copy_cache(self, copies: Sequence[tuple[int, int]], length: int) -> None:
        assert self.cache is not None
        for source, destination in copies:
            self.cache.copy_row(destination, self.cache, source, length)

    def move_row(self, source: int, destination: int, length: int) -> None:
        self.take_rows(self, [(source, destination)], length)

    def take_rows(self, other: RowTable, rows: Sequence[tuple[int, int]], length: int) -> None:
        assert isinstance(other, OnnxRowTable)
        last_row = max(destination for _, destination in rows)
        longest_source = max(int(other.source_lengths[source]) for source, _ in rows)
        self.cross = self._reserve(self.cross, last_row + 1, self._source_capacity(longest_source))
        if length:
            self.cache = self._reserve(self.cache, last_row + 1, self._capacity(length))
        for source, destination in rows:
            source_length = int(other.source_lengths[source])
            assert other.cross is not None
            self.cross.copy_row(destination, other.cross, source, source_length)
            self.source_lengths[destination] = source_length
            if length:
                assert self.cache is not None
                assert other.cache is not None
                self.cache.copy_row(destination, other.cache, source, length)

    def _capacity(self, length: int) -> int:
        return bucket(length, self._graphs.max_target_tokens)

    def _source_capacity(self, length: int) -> int:
        return source_bucket(length, self._graphs.max_source_tokens)

    def _fit(self, block: Block | None, num_rows: int, capacity: int) -> Block:
        """`block`, grown where it is too small, or cut where long rows have left and it is far too large."""
        if block is not None and block.shape[2] > 2 * capacity:
            smaller = self._allocate(block.shape[1], capacity)
            smaller.copy_rows(block, num_rows, capacity)
            return smaller
        return self._reserve(block, num_rows, capacity)

    def _reserve(self, block: Block | None, num_rows: int, capacity: int) -> Block:
        """`block`, or a larger one with the same content, with room for `num_rows` rows of `capacity` positions."""
        if block is None:
            return self._allocate(num_rows, capacity)
        _, old_rows, old_capacity, _ = block.shape
        if num_rows <= old_rows and capacity <= old_capacity:
            return block
        # Rows come one by one under load, so their number doubles.
        larger = self._allocate(
            old_rows if num_rows <= old_rows else max(num_rows, 2 * old_rows), max(capacity, old_capacity)
        )
        larger.copy_rows(block, old_rows, old_capacity)
        return larger

    def _allocate(self, num_rows: int, capacity: int) -> Block:
        rows = min(self._max_rows, -(-num_rows // _ROW_BUCKET) * _ROW_BUCKET)
        graphs = self._graphs
        return graphs.memory.allocate((2 * graphs.num_layers, rows, capacity, graphs.width), graphs.dtype)

    def _bind(self, num_rows: int) -> None:
        """Bind the first `num_rows` rows; the pointers stay bound for as long as nothing moves."""
        assert self.cache is not None
        assert self.cross is not None
        bound = self._bound
        # The blocks themselves are kept and compared: an id, like an address, is used again once a block is gone.
        if bound is None or bound[0] != num_rows or bound[1] is not self.cache or bound[2] is not self.cross:
            self._graphs.bind_blocks(self._binding, num_rows, self.cache, self.cross)
            self._bind_host_arrays(num_rows)
            self._bound = num_rows, self.cache, self.cross
        elif self._graphs.memory.name != "cpu":
            self._bind_host_arrays(num_rows)  # binding is what copies them to the device

    def _bind_host_arrays(self, num_rows: int) -> None:
        inputs = {
            "input_ids": (self._input_ids, (num_rows, 1)),
            "write_indices": (self._write_indices, (num_rows,)),
            "last_indices": (self._last_indices, (num_rows,)),
            "source_lengths": (self.source_lengths, (num_rows,)),
        }
        for name, (array, shape) in inputs.items():
            self._binding.bind_input(name, "cpu", 0, _INT64, shape, array.ctypes.data)
        ids, log_probs = self._candidates
        shape = (num_rows, self._graphs.num_candidates)
        self._binding.bind_output("candidate_ids", "cpu", 0, _INT64, shape, ids.ctypes.data)
        self._binding.bind_output("candidate_log_probs", "cpu", 0, _FLOAT32, shape, log_probs.ctypes.data)
