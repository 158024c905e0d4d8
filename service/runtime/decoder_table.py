"""A table of a decoder's cache rows on ONNX Runtime: neighbouring rows are bound by pointer and written in place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from service.engine.backend import Candidates, Floats, Ids
from service.engine.generation.backend import Advanced, GenerationTable, SavedRow
from service.runtime.decoder_graph import DecoderGraph
from service.runtime.growth import Blocks, bucket, cut, reserve
from service.runtime.memory import Block

_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)


class OnnxSavedRow(NamedTuple):
    """A block with one row."""

    block: Block
    length: int


class _Shape(NamedTuple):
    """What decides how a call is bound; the block itself, because an id, like an address, is used again."""

    first_row: int
    num_rows: int
    num_new: int
    num_reads: int
    num_candidates: int
    wants_logits: bool
    cache: Block

    def equals(self, other: _Shape | None) -> bool:
        return other is not None and self[:-1] == other[:-1] and self.cache is other.cache


class _Call:
    """A binding of the graph with the arrays that it reads and writes, kept for as long as calls are alike."""

    def __init__(self, graph: DecoderGraph) -> None:
        self._graph = graph
        self._binding = graph.session.io_binding()
        self._bound: _Shape | None = None

    def run(self, shape: _Shape, input_ids: Ids, write_indices: Ids, read_indices: Ids) -> Advanced:
        graph = self._graph
        if not shape.equals(self._bound):
            self._bind(shape)
        self._input_ids[:], self._write_indices[:], self._read_indices[:] = input_ids, write_indices, read_indices
        if graph.memory.name != "cpu":
            self._bind_inputs()  # binding is what copies them to the device
        graph.memory.synchronize()
        graph.session.run_with_iobinding(self._binding)
        return Advanced(self._candidates, self._logits)

    def _bind(self, shape: _Shape) -> None:
        num_rows = shape.num_rows
        self._input_ids: Ids = np.empty((num_rows, shape.num_new), np.int64)
        self._write_indices: Ids = np.empty(num_rows, np.int64)
        self._read_indices: Ids = np.empty(shape.num_reads, np.int64)
        self._num_candidates: Ids = np.array([shape.num_candidates], np.int64)
        candidates_shape = (shape.num_reads, shape.num_candidates)
        self._candidates = Candidates(np.empty(candidates_shape, np.int64), np.empty(candidates_shape, np.float32))
        self._logits: Floats | None = None
        binding = self._binding
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        self._graph.bind_rows(binding, shape.cache, shape.first_row, num_rows)
        self._bind_inputs()
        outputs: dict[str, Ids | Floats] = {
            "candidate_ids": self._candidates.ids,
            "candidate_log_probs": self._candidates.log_probs,
        }
        if shape.wants_logits:
            self._logits = np.empty((shape.num_reads, self._graph.vocab_size), np.float32)
            outputs["logits"] = self._logits
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._bound = shape

    def _bind_inputs(self) -> None:
        inputs = {
            "input_ids": self._input_ids,
            "write_indices": self._write_indices,
            "read_indices": self._read_indices,
            "num_candidates": self._num_candidates,
        }
        for name, array in inputs.items():
            self._binding.bind_input(name, "cpu", 0, _INT64, array.shape, array.ctypes.data)


class OnnxGenerationTable:
    """Rows of one model; see `service.engine.generation.backend.GenerationTable`."""

    def __init__(self, graph: DecoderGraph, max_rows: int) -> None:
        self._graph = graph
        self._blocks = Blocks(graph.spares, 2 * graph.num_layers, graph.width, max_rows)
        self.cache: Block | None = None
        self._num_used = 0  # rows beyond these hold nothing, and are not copied when the table grows
        # Steps are alike for long, and prompts come between them.
        self._step, self._prefill = _Call(graph), _Call(graph)

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
        if end > self._graph.max_total_tokens:
            raise IndexError(f"position {end - 1} is beyond the model's {self._graph.max_total_tokens} positions")
        cache = self._reserve(first_row + num_rows, end)
        shape = _Shape(first_row, num_rows, num_new, len(read_indices), num_candidates, wants_logits, cache)
        call = self._step if num_new == 1 else self._prefill
        return call.run(shape, input_ids, write_indices, read_indices)

    def reserve(self, num_rows: int, length: int) -> None:
        self.cache = reserve(self.cache, num_rows, self._capacity(length), self._blocks, self._num_used)

    def take_row(self, other: GenerationTable, source: int, destination: int, length: int) -> None:
        assert isinstance(other, OnnxGenerationTable)
        assert other.cache is not None
        cache = self._reserve(destination + 1, length)
        cache.copy_row(destination, other.cache, source, length)

    def save_row(self, row: int, length: int) -> OnnxSavedRow:
        assert self.cache is not None
        saved = OnnxSavedRow(self._graph.allocate(1, length), length)
        saved.block.copy_row(0, self.cache, row, length)
        return saved

    def load_row(self, row: int, saved: SavedRow, length: int) -> None:
        assert isinstance(saved, OnnxSavedRow)
        self._reserve(row + 1, length).copy_row(row, saved.block, 0, length)

    def trim(self, num_rows: int, length: int) -> None:
        self._num_used = num_rows
        if self.cache is not None and length:
            self.cache = cut(self.cache, num_rows, self._capacity(length), self._blocks)

    def release(self) -> None:
        self._blocks.release(self.cache)
        self.cache, self._num_used = None, 0

    def _reserve(self, num_rows: int, length: int) -> Block:
        self.cache = reserve(self.cache, num_rows, self._capacity(length), self._blocks, self._num_used)
        self._num_used = max(self._num_used, num_rows)
        return self.cache

    def _capacity(self, length: int) -> int:
        return bucket(length, self._graph.max_total_tokens)
