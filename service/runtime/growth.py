"""How the blocks of a table grow with what is in them, and are cut when that has left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from service.runtime.memory import Block, Memory

_ROWS = 8

_MAX_SPARES = 2
_MAX_SPARE_BYTES = 64 * 2**20
"""Growing a block of this size is rare, and its memory is missed elsewhere."""


def bucket(length: int, limit: int) -> int:
    """The capacity for `length` positions: multiples of 8 up to 64, of 16 up to 128, 32 up to 512, 128 beyond.

    The attention operator's cost follows the capacity, and each growth copies the table, so steps are neither wide nor
    many. Never more than `limit`.
    """
    step = 8 if length <= 64 else 16 if length <= 128 else 32 if length <= 512 else 128
    return min(limit, -(-length // step) * step)


def row_bucket(num_rows: int, limit: int) -> int:
    """The rows to allocate for `num_rows`: multiples of 8, never more than `limit`."""
    return min(limit, -(-num_rows // _ROWS) * _ROWS)


class Blocks:
    """Blocks for the tables of one kind. What one has outgrown serves the next in the processor's memory.

    There, fresh pages cost more than what is copied into them. What is left in them is finite, so that a weight of zero
    wipes it out. On a device ONNX Runtime keeps what is freed.
    """

    def __init__(self, memory: Memory, num_layers: int, width: int, dtype: np.dtype[Any], max_rows: int) -> None:
        self._memory, self._num_layers, self._width, self._dtype = memory, num_layers, width, dtype
        self._max_rows = max_rows
        self._spares: list[Block] = []

    def allocate(self, num_rows: int, capacity: int) -> Block:
        """A block for so many rows, or some more, of so many positions."""
        shape = (self._num_layers, row_bucket(num_rows, self._max_rows), capacity, self._width)
        fitting = [block for block in self._spares if block.num_numbers >= math.prod(shape)]
        if fitting:
            smallest = min(fitting, key=lambda block: block.num_numbers)
            self._spares = [block for block in self._spares if block is not smallest]
            return smallest.view(shape)
        if not self._keeps(math.prod(shape)):
            return self._memory.allocate(shape, self._dtype)
        # Room for the next sizes as well: pages that are not touched are not taken.
        roomy = (*shape[:2], 1 << (capacity - 1).bit_length(), shape[3])
        return self._memory.allocate(roomy, self._dtype).view(shape)

    def release(self, block: Block) -> None:
        """Take a block back that nothing uses any more."""
        if self._keeps(block.num_numbers):
            self._spares.append(block)
            self._spares.sort(key=lambda spare: spare.num_numbers, reverse=True)
            del self._spares[_MAX_SPARES:]

    def _keeps(self, num_numbers: int) -> bool:
        return self._memory.name == "cpu" and num_numbers * self._dtype.itemsize <= _MAX_SPARE_BYTES


def reserve(block: Block | None, num_rows: int, capacity: int, blocks: Blocks, num_used: int | None = None) -> Block:
    """`block`, or a larger one with the same content, with room for `num_rows` rows of `capacity` positions.

    Only its first `num_used` rows are copied; None copies them all. A block that is replaced goes back to `blocks`.
    """
    if block is None:
        return blocks.allocate(num_rows, capacity)
    _, old_rows, old_capacity, _ = block.shape
    if num_rows <= old_rows and capacity <= old_capacity:
        return block
    # Rows come one by one under load, so their number doubles.
    new_rows = old_rows if num_rows <= old_rows else max(num_rows, 2 * old_rows)
    larger = blocks.allocate(new_rows, max(capacity, old_capacity))
    if num_copied := old_rows if num_used is None else min(num_used, old_rows):
        larger.copy_rows(block, num_copied, old_capacity)
    blocks.release(block)
    return larger


def cut(block: Block, num_rows: int, capacity: int, blocks: Blocks) -> Block:
    """`block`, or a smaller one with the same content where long rows have left and it is far too large.

    All of its content must lie within the first `num_rows` rows and `capacity` positions.
    """
    if block.shape[2] <= 2 * capacity:
        return block
    smaller = blocks.allocate(max(num_rows, block.shape[1]), capacity)
    if num_copied := min(num_rows, block.shape[1]):
        smaller.copy_rows(block, num_copied, capacity)
    blocks.release(block)
    return smaller


def fit(block: Block | None, num_rows: int, capacity: int, blocks: Blocks) -> Block:
    """What `cut` and `reserve` make of `block`."""
    smaller = None if block is None else cut(block, num_rows, capacity, blocks)
    return reserve(smaller, num_rows, capacity, blocks)
