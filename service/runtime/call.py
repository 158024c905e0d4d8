"""A call of a decoder graph: its I/O binding, its inputs and its outputs.

The binding and the small arrays are reused while consecutive steps have one shape. On a device the rows of a step are
padded to a power of two, so that few CUDA graphs are recorded and each is launched often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.engine.core.arrays import Candidates, Floats, Ids
from service.engine.decode.backend import Advanced
from service.runtime.growth import power_of_two
from service.runtime.memory import Block, Memory
from service.runtime.step_arrays import Spec, StepArrays
from service.runtime.step_graphs import StepGraphs

_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)
_IDS, _LOG_PROBS = "candidate_ids", "candidate_log_probs"


class Shape(NamedTuple):
    """What decides how a call is bound; the blocks themselves, because ids and addresses are reused."""

    first_row: int
    num_rows: int
    num_new: int
    num_reads: int
    num_candidates: int
    wants_logits: bool
    cache: Block
    num_slots: int = 0
    cross: Block | None = None

    def equals(self, other: Shape | None) -> bool:
        return (
            other is not None
            and self[:6] == other[:6]
            and self.num_slots == other.num_slots
            and self.cache is other.cache
            and self.cross is other.cross
        )


class CallGraph(Protocol):
    """What a call needs of a decoder graph."""

    decoder: Any
    memory: Memory
    vocab_size: int
    num_candidates: int
    rows_each: int
    """The rows that one row of a table has in a block of the cache."""
    recorded: StepGraphs | None
    idle_calls: dict[int, list[Call]]

    def bind_rows(self, binding: Any, shape: Shape) -> None:
        """Bind the rows of `shape` as they lie in their blocks; new caches go where the old ones are."""


class Call:
    """A binding of `graph`. With `max_rows` it is for steps of up to so many rows, in arrays at fixed addresses.

    A step can be bound `after` another: it then reads the tokens that the other chose where they were written.
    """

    def __init__(self, graph: CallGraph, max_rows: int = 0, after: Call | None = None) -> None:
        self.max_rows = max_rows
        self._after = after
        self._following: Call | None = None
        self.graph = graph
        self._binding = graph.decoder.io_binding()
        self._bound: Shape | None = None
        self._key: tuple[Any, ...] | None = None
        self._sizes: tuple[int, int, int] | None = None
        self._logits: StepArrays | None = None
        self._logits_room = 0
        if max_rows:
            self._make_arrays(max_rows, max_rows, max_rows)

    @classmethod
    def for_steps(cls, graph: CallGraph, max_rows: int) -> Call:
        """One that a table has released, whose addresses are recorded in CUDA graphs, or a new one."""
        try:
            return graph.idle_calls.setdefault(max_rows, []).pop()
        except IndexError:
            return cls(graph, max_rows)

    def unbind(self) -> None:
        """Drop the references to blocks, here and in the calls of the steps after this one."""
        self._binding.clear_binding_inputs()
        self._binding.clear_binding_outputs()
        self._bound = None
        if self._following is not None:
            self._following.unbind()

    def release(self) -> None:
        """Offer this call to other tables, and those of the steps after it."""
        self.unbind()
        self.graph.idle_calls[self.max_rows].append(self)

    def run(self, shape: Shape, inputs: Mapping[str, Ids], ends: Ids | None = None) -> Advanced:
        """Run the graph on `inputs`: ids (B,T), write_indices (B), read_indices (R), source_lengths (B/K).

        `ends` counts the positions that each row of the block may hold, from the first row on: a row of padding is
        written behind them. None: the step is not padded.
        """
        self.prepare(shape, inputs, ends)
        self.graph.memory.synchronize()
        self.launch(shape, is_recorded=ends is not None)
        return self.read(shape)

    def next_call(self) -> Call:
        """A call for the step after this one."""
        if self._following is None:
            self._following = Call(self.graph, self.max_rows, after=self)
        return self._following

    def prepare(self, shape: Shape, inputs: Mapping[str, Ids], ends: Ids | None) -> None:
        """Bind, and bring the inputs to where the graph reads them."""
        bound = shape if ends is None or self.graph.recorded is None else self._filled(shape, ends)
        if not bound.equals(self._bound):
            self._bind(bound)
        for name, array in inputs.items():
            self._arrays[name][: len(array)] = array
        if bound is not shape:
            self._fill_up(shape, bound, ends)
        self._inputs.send()

    def launch(self, shape: Shape, *, is_recorded: bool, waits: bool = True) -> None:
        """Run the graph on what `prepare` has bound; see `StepGraphs.run` for `waits`."""
        graph = self.graph
        if graph.recorded is None:
            graph.decoder.run_with_iobinding(self._binding)
        else:
            key = self._key if is_recorded else None
            graph.recorded.run(self._binding, key, lambda: self.read(shape).candidates, waits=waits)

    def _filled(self, shape: Shape, ends: Ids) -> Shape:
        """`shape` with slots and candidates padded to powers of two; no slots where a row of padding would be full."""
        rows_per_slot = shape.num_rows // shape.num_slots if shape.num_slots else 1
        most = min(shape.cache.shape[1] // self.graph.rows_each, self.max_rows) // rows_per_slot
        if shape.cross is not None:
            most = min(most, shape.cross.shape[1])
        num_slots = min(most, power_of_two(shape.num_rows // rows_per_slot))
        num_rows = num_slots * rows_per_slot
        if (ends[shape.num_rows : num_rows] >= shape.cache.shape[2]).any():
            num_slots, num_rows = shape.num_rows // rows_per_slot, shape.num_rows
        return shape._replace(
            num_rows=num_rows,
            num_reads=num_rows,
            num_slots=num_slots if shape.num_slots else 0,
            num_candidates=min(power_of_two(shape.num_candidates), self.graph.num_candidates),
        )

    def _fill_up(self, shape: Shape, bound: Shape, ends: Ids | None) -> None:
        assert ends is not None
        added = slice(shape.num_rows, bound.num_rows)
        self._arrays["input_ids"][added] = 0
        self._arrays["write_indices"][added] = ends[added]
        self._arrays["read_indices"][added] = np.arange(shape.num_rows, bound.num_rows)
        if bound.num_slots:
            self._arrays["source_lengths"][shape.num_slots :] = 1

    def _make_arrays(self, num_ids: int, num_rows: int, num_reads: int) -> None:
        memory, width = self.graph.memory, self.graph.num_candidates
        sizes = {"input_ids": num_ids, "write_indices": num_rows, "read_indices": num_reads, "source_lengths": num_rows}
        self._sizes = num_ids, num_rows, num_reads
        self._inputs = StepArrays(memory, {name: Spec(_INT64, size) for name, size in sizes.items()})
        room = num_reads * width
        self.outputs = StepArrays(memory, {_IDS: Spec(_INT64, room), _LOG_PROBS: Spec(_FLOAT32, room)})

    def _bind(self, shape: Shape) -> None:
        num_rows, num_reads, graph, binding = shape.num_rows, shape.num_reads, self.graph, self._binding
        if not self.max_rows:
            sizes = num_rows * shape.num_new, num_rows, num_reads
            if self._sizes is None or any(size > room for size, room in zip(sizes, self._sizes, strict=True)):
                self._make_arrays(*sizes)
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        graph.bind_rows(binding, shape)
        shapes: dict[str, tuple[int, ...]] = {
            "input_ids": (num_rows, shape.num_new),
            "write_indices": (num_rows,),
            "read_indices": (num_reads,),
        }
        if shape.num_slots:
            shapes["source_lengths"] = (shape.num_slots,)
        for name, size in shapes.items():
            if name == "input_ids" and self._after is not None:
                self._after.outputs.bind_input(binding, name, size, of=_IDS)
            else:
                self._inputs.bind_input(binding, name, size)
        self._arrays: dict[str, NDArray[Any]] = {name: self._inputs.array(name, size) for name, size in shapes.items()}
        # The size of a result, which stays on the host.
        self._num_candidates: Ids = np.array([shape.num_candidates], np.int64)
        binding.bind_input("num_candidates", "cpu", 0, _INT64, (1,), self._num_candidates.ctypes.data)
        size = (num_reads, shape.num_candidates)
        for name in (_IDS, _LOG_PROBS):
            self.outputs.bind_output(binding, name, size)
        self._candidates = Candidates(self.outputs.array(_IDS, size), self.outputs.array(_LOG_PROBS, size))
        self._all_logits: Floats | None = None
        if shape.wants_logits:
            self._bind_logits((num_reads, graph.vocab_size))
        self._bound = shape
        addresses = shape.cache.pointer(0), self._inputs.address, self.outputs.address
        others = () if shape.cross is None else (shape.cross.pointer(0), shape.cross.shape)
        logits = self._logits.address if shape.wants_logits and self._logits is not None else 0
        # What is read of another step has an address that never changes as long as this step's own do not.
        self._key = (shape[:6], shape.num_slots, shape.cache.shape, *addresses, *others, logits)

    def _bind_logits(self, size: tuple[int, int]) -> None:
        room = math.prod((max(self.max_rows, size[0]), size[1]))
        if self._logits is None or self._logits_room < room:
            self._logits, self._logits_room = StepArrays(self.graph.memory, {"logits": Spec(_FLOAT32, room)}), room
        self._logits.bind_output(self._binding, "logits", size)
        self._all_logits = self._logits.array("logits", size)

    def read(self, shape: Shape) -> Advanced:
        """The outputs for the reads of `shape`, copied to the host."""
        self.outputs.receive()
        candidates, logits = self._candidates, self._all_logits
        if logits is not None and self._logits is not None:
            self._logits.receive()
        if shape is not self._bound and (shape.num_reads, shape.num_candidates) != candidates.ids.shape:
            reads, best = slice(shape.num_reads), slice(shape.num_candidates)
            candidates = Candidates(candidates.ids[reads, best], candidates.log_probs[reads, best])
            logits = None if logits is None else logits[: shape.num_reads]
        return Advanced(candidates, logits)
