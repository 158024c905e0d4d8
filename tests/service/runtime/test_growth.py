"""Growing blocks: contents survive, and the memory of an outgrown one serves again."""

from __future__ import annotations

import time

import numpy as np
import pytest

from service.runtime import growth
from service.runtime.growth import Blocks, Spares, bucket, cut, reserve, row_bucket
from service.runtime.memory import HostBlock, HostMemory
from tests.service.runtime.blocks import HostCudaMemory

FLOAT32 = np.dtype(np.float32)


def host_blocks(max_rows: int = 16) -> Blocks:
    return Blocks(Spares(HostMemory(), FLOAT32), 2, 4, max_rows)


def fill(block: object) -> HostBlock:
    assert isinstance(block, HostBlock)
    block.array[...] = np.arange(block.array.size, dtype=np.float32).reshape(block.shape)
    return block


def test_growing_keeps_the_rows_and_shrinking_too() -> None:
    blocks = host_blocks()
    block = fill(reserve(None, 3, 8, blocks))
    assert block.shape == (2, 8, 8, 4)
    before = block.array.copy()
    larger = reserve(block, 9, 16, blocks)
    assert larger.shape == (2, 16, 16, 4)
    assert isinstance(larger, HostBlock)
    np.testing.assert_array_equal(larger.array[:, :8, :8], before)
    smaller = cut(larger, 3, 4, blocks)
    assert isinstance(smaller, HostBlock)
    assert smaller.shape == (2, 16, 4, 4)
    np.testing.assert_array_equal(smaller.array[:, :3], before[:, :3, :4])


def test_the_memory_of_an_outgrown_block_serves_again() -> None:
    blocks = host_blocks()
    first = blocks.allocate(8, 24)
    address = first.pointer(0)
    blocks.release(first)
    again = blocks.allocate(8, 16)
    assert again.pointer(0) == address
    assert again.shape == (2, 8, 16, 4)
    # It is taken, so the next block is another one.
    assert blocks.allocate(8, 8).pointer(0) != address


def test_a_view_knows_the_size_of_its_memory() -> None:
    blocks = host_blocks()
    blocks.release(blocks.allocate(8, 24))  # with room for 32
    narrow = blocks.allocate(8, 8)
    blocks.release(narrow)
    wide = blocks.allocate(8, 32)
    assert wide.pointer(0) == narrow.pointer(0)


def test_the_smallest_spare_that_fits_is_taken() -> None:
    blocks = host_blocks()
    spares = [blocks.allocate(8, capacity) for capacity in (32, 8, 64)]
    addresses = [spare.pointer(0) for spare in spares]
    for spare in spares:
        blocks.release(spare)
    assert [blocks.allocate(8, 8).pointer(0) for _ in range(3)] == [addresses[1], addresses[0], addresses[2]]


def test_tables_of_one_model_share_what_they_give_back() -> None:
    spares = Spares(HostMemory(), FLOAT32)
    first, second = (Blocks(spares, num_layers, 4, 16) for num_layers in (2, 4))
    block = first.allocate(8, 64)
    first.release(block)
    assert second.allocate(8, 32).pointer(0) == block.pointer(0)


def test_of_too_much_memory_what_was_given_back_first_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = host_blocks()
    spares = [blocks.allocate(8, 8) for _ in range(3)]
    monkeypatch.setattr(blocks._spares, "_limit", 2 * spares[0].num_numbers * 4)
    for spare in spares:
        blocks.release(spare)
    again = {blocks.allocate(8, 8).pointer(0) for _ in range(2)}
    assert again == {spare.pointer(0) for spare in spares[1:]}


def test_large_blocks_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(growth._MAX_SPARE_BYTES, "cpu", 2 * 8 * 8 * 4 * 4)
    spares = Spares(HostMemory(), FLOAT32)
    blocks = Blocks(spares, 2, 4, 16)
    large = blocks.allocate(8, 9)
    assert large.num_numbers == 2 * 8 * 9 * 4  # and have no room to spare
    blocks.release(large)
    assert spares.take(1) is None


def test_on_a_device_a_block_comes_back_where_it_was() -> None:
    memory = HostCudaMemory("cuda")
    blocks = Blocks(Spares(memory, FLOAT32), 2, 4, 16)
    first = blocks.allocate(8, 64)
    blocks.release(first)
    smaller = blocks.allocate(8, 32)
    assert blocks.allocate(8, 64).pointer(0) == first.pointer(0) != smaller.pointer(0)
    assert [value.array.shape for value in memory.values] == [(2, 8, 64, 4), (2, 8, 32, 4)]


def test_on_a_device_sizes_are_powers_of_two() -> None:
    assert [bucket(length, 700, "cuda") for length in (1, 64, 65, 300, 513, 700)] == [64, 64, 128, 512, 700, 700]
    assert [row_bucket(count, 100, "cuda") for count in (1, 8, 9, 33, 65)] == [8, 8, 16, 64, 100]


def test_rows_that_grow_within_their_memory_stay_where_they_are() -> None:
    blocks = host_blocks()
    block = fill(reserve(None, 3, 20, blocks))  # with room for 32
    before = block.array.copy()
    wider = reserve(block, 3, 32, blocks, num_used=3)
    assert isinstance(wider, HostBlock)
    assert wider.pointer(0) == block.pointer(0)
    np.testing.assert_array_equal(wider.array[:, :3, :20], before[:, :3])
    moved = reserve(wider, 3, 33, blocks, num_used=3)
    assert isinstance(moved, HostBlock)
    assert moved.pointer(0) != block.pointer(0)
    np.testing.assert_array_equal(moved.array[:, :3, :20], before[:, :3])


def test_a_spare_block_that_nobody_takes_goes_back_to_the_system() -> None:
    spares = Spares(HostMemory(), FLOAT32, keep_seconds=0.2)
    blocks = Blocks(spares, 2, 4, 16)
    first, second = blocks.allocate(8, 8), blocks.allocate(8, 8)
    spares.give(first)
    time.sleep(0.15)
    spares.give(second)
    num_kept = []
    end = time.monotonic() + 10
    while spares.num_blocks:
        assert time.monotonic() < end
        num_kept.append(spares.num_blocks)
        time.sleep(0.01)
    assert num_kept[0] == 2
    assert num_kept[-1] == 1  # each has its own time


def test_a_spare_block_is_kept_for_a_while_and_on_a_device_for_good() -> None:
    host = Spares(HostMemory(), FLOAT32, keep_seconds=60)
    host.give(host.memory.allocate((1, 8, 8, 4), FLOAT32))
    device = Spares(HostCudaMemory("cuda"), FLOAT32, keep_seconds=0.05)
    device.give(device.memory.allocate((1, 8, 8, 4), FLOAT32))
    time.sleep(0.2)
    assert host.take(1) is not None
    assert device.take(8 * 8 * 4) is not None
