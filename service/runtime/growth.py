"""How the blocks of a table grow with their content, and shrink again."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np

from service.runtime.memory import Block, Memory

_ROWS = 8

_MAX_SPARE_BYTES = {"cpu": 512 * 2**20, "cuda": 4096 * 2**20}
"""The most freed memory that one model keeps for reuse, by device."""

_SPARE_SECONDS = 10.0
"""How long an unused block on a CPU is kept."""

_SMALLEST_ON_DEVICE = 64


def bucket(length: int, limit: int, memory: str = "cpu") -> int:
    """The capacity for `length` positions: multiples of 8 up to 64, of 16 up to 128, 32 up to 512, 128 beyond.

    The attention operator's cost follows the capacity, and each growth copies the table, so steps are neither wide nor
    many. On a device they are powers of two from 64 on, because each capacity has CUDA graphs of its own. Never more
    than `limit`.
    """
    if memory != "cpu":
        return min(limit, max(_SMALLEST_ON_DEVICE, power_of_two(length)))
    step = 8 if length <= 64 else 16 if length <= 128 else 32 if length <= 512 else 128
    return min(limit, -(-length // step) * step)


def power_of_two(number: int) -> int:
    """The least power of two that is no less than `number`."""
    return 1 << max(0, number - 1).bit_length()


def row_bucket(num_rows: int, limit: int, memory: str = "cpu") -> int:
    """The rows to allocate for `num_rows`: multiples of 8, on a device powers of two; never more than `limit`."""
    if memory != "cpu":
        return min(limit, max(_ROWS, power_of_two(num_rows)))
    return min(limit, -(-num_rows // _ROWS) * _ROWS)


class Spares:
    """A pool of freed blocks for reuse, shared by all tables of a model and thread-safe.

    On a CPU the page faults of fresh memory take longer than the copies into it, on a virtual machine ten times as
    long. Blocks are not cleared: stale values are finite and masked. A block that is not taken for `keep_seconds` is
    freed. On a device a block of the same size has the same address again, for which CUDA graphs were recorded, so
    there blocks are kept.
    """

    def __init__(self, memory: Memory, dtype: np.dtype[Any], keep_seconds: float = _SPARE_SECONDS) -> None:
        self.memory, self.dtype = memory, dtype
        self._limit = _MAX_SPARE_BYTES[memory.name]
        self._keep_seconds = keep_seconds
        self._blocks: list[Block] = []
        self._given: list[float] = []
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def take(self, num_numbers: int) -> Block | None:
        """The smallest block that holds so many numbers."""
        with self._lock:
            is_exact = self.memory.name != "cpu"
            fitting = [
                block
                for block in self._blocks
                if block.num_numbers == num_numbers or (block.num_numbers > num_numbers and not is_exact)
            ]
            if not fitting:
                return None
            smallest = min(fitting, key=lambda block: block.num_numbers)
            self._forget(next(place for place, block in enumerate(self._blocks) if block is smallest))
            return smallest

    def give(self, block: Block) -> None:
        """Take a block that is no longer used; beyond the limit, the oldest blocks are freed."""
        if not self.keeps(block.num_numbers):
            return
        with self._lock:
            self._blocks.append(block)
            self._given.append(time.monotonic())
            while sum(spare.num_numbers for spare in self._blocks) * self.dtype.itemsize > self._limit:
                self._forget(0)
            self._watch()

    def _forget(self, place: int) -> None:
        del self._blocks[place], self._given[place]

    def _watch(self) -> None:
        """Start the timer that frees old blocks; called with the lock held."""
        if self._timer is None and self._blocks and self.memory.name == "cpu":
            self._timer = threading.Timer(self._keep_seconds, self._drop_old)
            self._timer.daemon = True
            self._timer.start()

    def _drop_old(self) -> None:
        with self._lock:
            self._timer = None
            oldest = time.monotonic() - self._keep_seconds
            while self._given and self._given[0] <= oldest:
                self._forget(0)
            self._watch()

    @property
    def num_blocks(self) -> int:
        """Number of free blocks."""
        with self._lock:
            return len(self._blocks)

    def keeps(self, num_numbers: int) -> bool:
        """Whether a block of so many numbers would be kept."""
        return num_numbers * self.dtype.itemsize <= self._limit


class Blocks:
    """Blocks for one table, allocated from and released to `spares`."""

    def __init__(self, spares: Spares, num_layers: int, width: int, max_rows: int) -> None:
        self._spares, self._num_layers, self._width, self._max_rows = spares, num_layers, width, max_rows

    def allocate(self, num_rows: int, capacity: int) -> Block:
        """A block for so many rows, or some more, of so many positions."""
        spares = self._spares
        name = spares.memory.name
        shape = (self._num_layers, row_bucket(num_rows, self._max_rows, name), capacity, self._width)
        spare = spares.take(math.prod(shape))
        if spare is not None:
            return spare.view(shape)
        if name != "cpu" or not spares.keeps(math.prod(shape)):
            return spares.memory.allocate(shape, spares.dtype)
        # Room for the next sizes as well: untouched pages take no memory.
        roomy = (*shape[:2], 1 << (capacity - 1).bit_length(), shape[3])
        return spares.memory.allocate(roomy, spares.dtype).view(shape)

    def release(self, block: Block | None) -> None:
        """Return a block that is no longer used to the pool."""
        if block is not None:
            self._spares.give(block)


def reserve(block: Block | None, num_rows: int, capacity: int, blocks: Blocks, num_used: int | None = None) -> Block:
    """`block`, or a larger one with the same content, with room for `num_rows` rows of `capacity` positions.

    Only its first `num_used` rows are copied; None copies them all. A block that is replaced goes back to `blocks`.
    """
    if block is None:
        return blocks.allocate(num_rows, capacity)
    _, old_rows, old_capacity, _ = block.shape
    if num_rows <= old_rows and capacity <= old_capacity:
        return block
    num_copied = old_rows if num_used is None else min(num_used, old_rows)
    if num_rows <= old_rows:
        widened = block.widen(capacity, num_copied)
        if widened is not None:
            return widened
    # Rows are added one by one under load, so their number doubles.
    new_rows = old_rows if num_rows <= old_rows else max(num_rows, 2 * old_rows)
    larger = blocks.allocate(new_rows, max(capacity, old_capacity))
    if num_copied:
        larger.copy_rows(block, num_copied, old_capacity)
    blocks.release(block)
    return larger


def cut(block: Block, num_rows: int, capacity: int, blocks: Blocks) -> Block:
    """`block`, or a smaller one with the same content where it has more than twice the capacity needed.

    All of its content must lie within the first `num_rows` rows and `capacity` positions.
    """
    if block.shape[2] <= 2 * capacity:
        return block
    smaller = blocks.allocate(max(num_rows, block.shape[1]), capacity)
    if num_copied := min(num_rows, block.shape[1]):
        smaller.copy_rows(block, num_copied, capacity)
    blocks.release(block)
    return smaller
