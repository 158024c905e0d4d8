"""A table of cache rows on ONNX Runtime: adjacent rows are bound by pointer, written in place, grown in buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from service.engine.core.arrays import Ids
from service.engine.decode.backend import Advanced, SavedRow, Table
from service.runtime.call import Call, Shape
from service.runtime.growth import Blocks, bucket, cut, reserve
from service.runtime.memory import Block

if TYPE_CHECKING:
    from service.runtime.decoder import DecoderGraphs


_LEAST_SOURCE = 4
"""The capacity for the shortest sources."""


def source_bucket(length: int, limit: int) -> int:
    """The capacity for sources: multiples of 4 up to 64, finer because they do not grow while they are translated."""
    if length > 64:
        return bucket(length, limit)
    return min(limit, -(-length // _LEAST_SOURCE) * _LEAST_SOURCE)


_KEPT_NUMBERS = 2 << 20
"""What an empty table keeps of each block for the next request, 8 MiB of float32; a larger one goes to the spares."""


class OnnxSavedRow(NamedTuple):
    """A block with one row."""

    block: Block
    length: int


class OnnxTable:
    """Rows of one model; see `service.engine.decode.backend.Table`. Its blocks grow and shrink with their content.

    `cache` has a row for each beam; `cross` and `source_lengths` have one for each slot, where there are sources.
    """

    def __init__(self, graphs: DecoderGraphs, max_rows: int, beam_size: int) -> None:
        self._graphs, self.beam_size = graphs, beam_size
        self._blocks = Blocks(graphs.spares, 2 * graphs.num_layers, graphs.width, max_rows)
        self.cache: Block | None = None
        self.cross: Block | None = None
        self._scratch: Block | None = None
        self.source_lengths: Ids = np.ones(max_rows // beam_size, dtype=np.int64)
        self._num_used = 0  # rows beyond these are empty, and not copied when the table grows
        # Two, because steps keep their binding while chunks of prefill run between them.
        self._step, self._prefill = Call.for_steps(graphs, max_rows), Call(graphs)
        # Positions that rows may hold: the padding of a step that is recorded as a CUDA graph is written behind them.
        self._ends: Ids = np.zeros(max_rows, np.int64)

    def encode(self, input_ids: Ids, lengths: Ids, slots: Sequence[int]) -> None:
        num_sources, longest = input_ids.shape
        graphs, scratch = self._graphs, self._scratch
        # The graph's outputs are packed, so any block of enough bytes will do; it is kept for the next call.
        if scratch is None or scratch.shape[1] * scratch.shape[2] < num_sources * longest:
            scratch = self._scratch = graphs.allocate(num_sources, longest)
        encoded = graphs.encode(input_ids, lengths, scratch)
        cross = self._reserve_memory(max(slots) + 1, longest)
        for source, slot in enumerate(slots):
            cross.copy_row(slot, encoded, source, int(lengths[source]))
            self.source_lengths[slot] = lengths[source]
            self._ends[slot * self.beam_size : (slot + 1) * self.beam_size] = 0

    def advance(
        self,
        first_row: int,
        input_ids: Ids,
        write_indices: Ids,
        read_indices: Ids,
        num_candidates: int,
        wants_logits: bool,
    ) -> Advanced:
        num_rows, num_new = input_ids.shape
        end = int(write_indices.max()) + num_new
        if end > self._graphs.max_total_tokens:
            raise IndexError(f"position {end - 1} is beyond the model's {self._graphs.max_total_tokens} positions")
        cache = self._reserve(first_row + num_rows, end)
        inputs = {"input_ids": input_ids, "write_indices": write_indices, "read_indices": read_indices}
        num_slots = 0
        if self.cross is not None:
            first_slot, num_slots = first_row // self.beam_size, num_rows // self.beam_size
            inputs["source_lengths"] = self.source_lengths[first_slot : first_slot + num_slots]
        shape = Shape(
            first_row,
            num_rows,
            num_new,
            len(read_indices),
            num_candidates,
            wants_logits,
            cache,
            num_slots,
            self.cross,
        )
        if num_new == 1 and len(read_indices) == num_rows:
            advanced = self._step.run(shape, inputs, self._ends if first_row == 0 else None)
        else:
            advanced = self._prefill.run(shape, inputs)
        if self._graphs.recorded is not None:
            self._ends[first_row : first_row + num_rows] = write_indices + num_new
        return advanced

    def reserve(self, num_rows: int, length: int) -> None:
        self.cache = reserve(self.cache, num_rows, self._capacity(length), self._blocks, self._num_used)

    def copy_rows(self, copies: Sequence[tuple[int, int]], length: int) -> None:
        assert self.cache is not None
        for source, destination in copies:
            self.cache.copy_row(destination, self.cache, source, length)

    def take_row(self, other: Table, source: int, destination: int, length: int) -> None:
        assert isinstance(other, OnnxTable)
        assert other.cache is not None
        cache = self._reserve(destination + 1, length)
        self._ends[destination] = length
        cache.copy_row(destination, other.cache, source, length)

    def take_slot(self, other: Table, source: int, destination: int, length: int) -> None:
        assert isinstance(other, OnnxTable)
        if self._graphs.has_source:
            assert other.cross is not None
            source_length = int(other.source_lengths[source])
            cross = self._reserve_memory(destination + 1, source_length)
            cross.copy_row(destination, other.cross, source, source_length)
            self.source_lengths[destination] = source_length
        first = destination * self.beam_size
        self._ends[first : first + self.beam_size] = length
        if length:
            assert other.cache is not None
            cache = self._reserve(first + self.beam_size, length)
            for beam in range(self.beam_size):
                row = source * other.beam_size + (beam if other.beam_size > 1 else 0)
                cache.copy_row(first + beam, other.cache, row, length)

    def save_row(self, row: int, length: int) -> OnnxSavedRow:
        assert self.cache is not None
        saved = OnnxSavedRow(self._graphs.allocate(1, length), length)
        saved.block.copy_row(0, self.cache, row, length)
        return saved

    def load_row(self, row: int, saved: SavedRow, length: int) -> None:
        assert isinstance(saved, OnnxSavedRow)
        self._reserve(row + 1, length).copy_row(row, saved.block, 0, length)
        self._ends[row] = length

    def trim(self, num_rows: int, length: int) -> None:
        self._num_used = num_rows
        self._ends[num_rows:] = 0
        if num_rows == 0 and self._is_large():
            self._give_back()
            return
        if self.cache is not None and length:
            self.cache = cut(self.cache, num_rows, self._capacity(length), self._blocks)
        num_slots = num_rows // self.beam_size
        if self.cross is not None and self.cross.shape[2] > 2 * _LEAST_SOURCE:
            longest = int(self.source_lengths[:num_slots].max(initial=1))
            self.cross = cut(self.cross, num_slots, self._source_capacity(longest), self._blocks)

    def release(self) -> None:
        self._give_back()
        self._step.release()

    def _give_back(self) -> None:
        for block in (self.cache, self.cross):
            self._blocks.release(block)
        self.cache = self.cross = None
        self._num_used = 0
        self._step.unbind()
        self._prefill.unbind()

    def _is_large(self) -> bool:
        blocks = (self.cache, self.cross)
        return self._graphs.memory.name == "cpu" and any(
            block and block.num_numbers > _KEPT_NUMBERS for block in blocks
        )

    def _reserve(self, num_rows: int, length: int) -> Block:
        self.cache = reserve(self.cache, num_rows, self._capacity(length), self._blocks, self._num_used)
        self._num_used = max(self._num_used, num_rows)
        return self.cache

    def _reserve_memory(self, num_slots: int, length: int) -> Block:
        self.cross = reserve(self.cross, num_slots, self._source_capacity(length), self._blocks)
        return self.cross

    def _capacity(self, length: int) -> int:
        return bucket(length, self._graphs.max_total_tokens, self._graphs.memory.name)

    def _source_capacity(self, length: int) -> int:
        limit, memory = self._graphs.max_source_tokens, self._graphs.memory.name
        return source_bucket(length, limit) if memory == "cpu" else bucket(length, limit, memory)
