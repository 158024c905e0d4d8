"""A table of cache rows on ONNX Runtime: adjacent rows are bound by pointer, written in place, grown in buckets."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from service.engine.core.arrays import Candidates, Ids
from service.engine.decode.backend import Advanced, SavedRow, Table
from service.runtime.call import Call, Shape
from service.runtime.greedy import run_greedily
from service.runtime.growth import bucket, cut, reserve
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
        self._cache_blocks = graphs.cache_blocks(max_rows)
        self._source_blocks = graphs.source_blocks(max_rows)
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
            scratch = self._scratch = graphs.allocate_sources(num_sources, longest)
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
        if self._graphs.reads_rows_alone and min(num_rows, num_new) > 1:
            return self._advance_rows(first_row, input_ids, write_indices, read_indices, num_candidates, wants_logits)
        cache = self._reserve_up_to(first_row + num_rows, int(write_indices.max()) + num_new)
        inputs = {"input_ids": input_ids, "write_indices": write_indices, "read_indices": read_indices}
        num_slots = self._add_sources(inputs, first_row, num_rows)
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

    def advance_greedily(
        self, input_ids: Ids, write_indices: Ids, num_steps: int, end_ids: Collection[int]
    ) -> Sequence[Candidates]:
        num_rows = len(input_ids)
        cache = self._reserve_up_to(num_rows, int(write_indices.max()) + num_steps)
        inputs = {"input_ids": input_ids, "write_indices": write_indices, "read_indices": np.arange(num_rows)}
        num_slots = self._add_sources(inputs, 0, num_rows)
        shape = Shape(0, num_rows, 1, num_rows, 1, False, cache, num_slots, self.cross)
        steps = run_greedily(self._step, shape, inputs, self._ends, num_steps, end_ids)
        if self._graphs.recorded is not None:
            self._ends[:num_rows] = write_indices + len(steps)
        return steps

    def _advance_rows(
        self,
        first_row: int,
        input_ids: Ids,
        write_indices: Ids,
        read_indices: Ids,
        num_candidates: int,
        wants_logits: bool,
    ) -> Advanced:
        """`advance` row by row, for a graph that reads several tokens of one row alone."""
        num_new, found = input_ids.shape[1], list[Advanced]()
        for row, (ids, start) in enumerate(zip(input_ids[:, None], write_indices[:, None], strict=True)):
            reads = read_indices[read_indices // num_new == row] - row * num_new
            advanced = self.advance(first_row + row, ids, start, reads, num_candidates, wants_logits)
            found.append(copy.deepcopy(advanced))
        ids, log_probs = (np.concatenate(parts) for parts in zip(*(each.candidates for each in found), strict=True))
        logits = [each.logits for each in found if each.logits is not None]
        return Advanced(Candidates(ids, log_probs), np.concatenate(logits) if wants_logits else None)

    def _add_sources(self, inputs: dict[str, Ids], first_row: int, num_rows: int) -> int:
        """Tell a call of the sources of its rows; returns how many there are."""
        if self.cross is None:
            return 0
        first_slot, num_slots = first_row // self.beam_size, num_rows // self.beam_size
        inputs["source_lengths"] = self.source_lengths[first_slot : first_slot + num_slots]
        return num_slots

    def _reserve_up_to(self, num_rows: int, end: int) -> Block:
        if end > self._graphs.max_total_tokens:
            raise IndexError(f"position {end - 1} is beyond the model's {self._graphs.max_total_tokens} positions")
        return self._reserve(num_rows, end)

    def reserve(self, num_rows: int, length: int) -> None:
        self._grow(num_rows, length)

    def copy_rows(self, copies: Sequence[tuple[int, int]], length: int) -> None:
        assert self.cache is not None
        for source, destination in copies:
            self._copy(self.cache, destination, self.cache, source, length)

    def take_row(self, other: Table, source: int, destination: int, length: int) -> None:
        assert isinstance(other, OnnxTable)
        assert other.cache is not None
        cache = self._reserve(destination + 1, length)
        self._ends[destination] = length
        self._copy(cache, destination, other.cache, source, length)

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
                self._copy(cache, first + beam, other.cache, row, length)

    def save_row(self, row: int, length: int) -> OnnxSavedRow:
        assert self.cache is not None
        saved = OnnxSavedRow(self._graphs.allocate_row(length), length)
        self._copy(saved.block, 0, self.cache, row, length)
        return saved

    def load_row(self, row: int, saved: SavedRow, length: int) -> None:
        assert isinstance(saved, OnnxSavedRow)
        self._copy(self._reserve(row + 1, length), row, saved.block, 0, length)
        self._ends[row] = length

    def trim(self, num_rows: int, length: int) -> None:
        self._num_used = num_rows
        self._ends[num_rows:] = 0
        if num_rows == 0:  # small blocks stay as they are for the next request, which would widen them again
            if self._is_large():
                self._give_back()
            return
        if self.cache is not None and length:
            num_rows_of_block = num_rows * self._graphs.rows_each
            self.cache = cut(self.cache, num_rows_of_block, self._capacity(length), self._cache_blocks)
        num_slots = num_rows // self.beam_size
        if self.cross is not None and self.cross.shape[2] > 2 * _LEAST_SOURCE:
            longest = int(self.source_lengths[:num_slots].max(initial=1))
            self.cross = cut(self.cross, num_slots, self._source_capacity(longest), self._source_blocks)

    def release(self) -> None:
        self._give_back()
        self._step.release()

    def _give_back(self) -> None:
        self._cache_blocks.release(self.cache)
        self._source_blocks.release(self.cross)
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
        cache = self._grow(num_rows, length)
        self._num_used = max(self._num_used, num_rows)
        return cache

    def _grow(self, num_rows: int, length: int) -> Block:
        each = self._graphs.rows_each
        self.cache = reserve(
            self.cache, num_rows * each, self._capacity(length), self._cache_blocks, self._num_used * each
        )
        return self.cache

    def _copy(self, block: Block, row: int, other: Block, other_row: int, length: int) -> None:
        """Copy the first `length` positions of a row of the table."""
        each = self._graphs.rows_each
        for part in range(each):
            block.copy_row(row * each + part, other, other_row * each + part, length)

    def _reserve_memory(self, num_slots: int, length: int) -> Block:
        self.cross = reserve(self.cross, num_slots, self._source_capacity(length), self._source_blocks)
        return self.cross

    def _capacity(self, length: int) -> int:
        return bucket(length, self._graphs.max_total_tokens, self._graphs.memory.name)

    def _source_capacity(self, length: int) -> int:
        limit, memory = self._graphs.max_source_tokens, self._graphs.memory.name
        return source_bucket(length, limit) if memory == "cpu" else bucket(length, limit, memory)
