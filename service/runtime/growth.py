"""How the blocks of a table grow with what is in them, and are cut when that has left."""

from __future__ import annotations

from collections.abc import Callable

from service.runtime.memory import Block

Allocate = Callable[[int, int], Block]
"""A new block for so many rows, or some more, of so many positions."""

_ROWS = 8


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


def reserve(
    block: Block | None, num_rows: int, capacity: int, allocate: Allocate, num_used: int | None = None
) -> Block:
    """`block`, or a larger one with the same content, with room for `num_rows` rows of `capacity` positions.

    Only its first `num_used` rows are copied; None copies them all.
    """
    if block is None:
        return allocate(num_rows, capacity)
    _, old_rows, old_capacity, _ = block.shape
    if num_rows <= old_rows and capacity <= old_capacity:
        return block
    # Rows come one by one under load, so their number doubles.
    larger = allocate(old_rows if num_rows <= old_rows else max(num_rows, 2 * old_rows), max(capacity, old_capacity))
    if num_copied := old_rows if num_used is None else min(num_used, old_rows):
        larger.copy_rows(block, num_copied, old_capacity)
    return larger


def cut(block: Block, num_rows: int, capacity: int, allocate: Allocate) -> Block:
    """`block`, or a smaller one with the same content where long rows have left and it is far too large.

    All of its content must lie within the first `num_rows` rows and `capacity` positions.
    """
    if block.shape[2] <= 2 * capacity:
        return block
    smaller = allocate(max(num_rows, block.shape[1]), capacity)
    if num_copied := min(num_rows, block.shape[1]):
        smaller.copy_rows(block, num_copied, capacity)
    return smaller


def fit(block: Block | None, num_rows: int, capacity: int, allocate: Allocate) -> Block:
    """What `cut` and `reserve` make of `block`."""
    smaller = None if block is None else cut(block, num_rows, capacity, allocate)
    return reserve(smaller, num_rows, capacity, allocate)
